"""Problems from files of other tools, as factor graphs with tables: pyDCOP's YAML, UAI's and WCSP's formats."""

from swarmbo.interchange.files import read_problem as read_problem, write_problem as write_problem
from swarmbo.interchange.problem import TableProblem as TableProblem
