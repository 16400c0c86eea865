"""Who carries each table through the stages."""
