"""Reading the configuration files: their shape by schema, then what no schema can say."""
