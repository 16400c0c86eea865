"""Settings: from arguments, environment and TOML to frozen records."""
