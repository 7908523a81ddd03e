from spark_session import spark  # noqa: F401 - a fixture
