"""What comes from outside and goes there: values of users and worlds, files, and what is said of data."""
