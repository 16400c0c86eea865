"""The stages inside one Spark job; the only pyspark imports."""
