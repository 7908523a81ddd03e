from cli.conftest import cli  # noqa: F401 - the fixture
from spark_session import spark  # noqa: F401 - the fixture
