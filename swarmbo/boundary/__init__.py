"""The boundary to the outside: values of users and worlds, files, and what is said of data."""
