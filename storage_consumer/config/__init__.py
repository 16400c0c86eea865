"""Settings.

Takes: flags, keywords, environment variables, URIs and TOML files. Gives: frozen records, or a `ConfigError` that names the option.
Touches the outside: reads the files that options name, and keeps secrets in a folder of this process alone.
"""
