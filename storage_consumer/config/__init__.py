"""Settings.

Takes: flags, keywords, environment variables, URIs and TOML files. Gives: frozen records, or a
`ConfigError` that names the option. Touches the outside: reads the files that options name, and
keeps secrets in a file in memory, or, where there are none, in a folder that only this user may
enter.
"""
