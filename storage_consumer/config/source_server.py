"""The database that a target is compared with: its URI has the form of the target's."""

from __future__ import annotations

from collections.abc import Mapping

from storage_consumer.config.load import load_target
from storage_consumer.config.option import ENVIRONMENT_PREFIX
from storage_consumer.config.options import BY_KEYWORD
from storage_consumer.config.settings import Downstream
from storage_consumer.errors import ConfigError

PASSWORD_VARIABLE = f"{ENVIRONMENT_PREFIX}SOURCE_PASSWORD"


def source_server(
    uri: str, password_file: str | None, environ: Mapping[str, str], *, frozen: bool, allow_unverified_server: bool
) -> tuple[Downstream, str, tuple[str, ...]]:
    """Return where the source is, its password, and all texts that must not be shown.

    `frozen`: whether nothing writes to it; else it has to be a TiDB, which can be read as of a commit-ts. Raises `ConfigError`.
    """
    scheme = uri.partition(":")[0].lower().removesuffix("+ssl")
    if scheme != "tidb" and not frozen:
        raise ConfigError(
            "--source must be a TiDB (tidb://user@host:4000/), which can be read as of a commit-ts; another server only with "
            "--frozen, by which you promise that nothing writes to it meanwhile"
        )
    options = {
        "downstream_uri": uri,
        "downstream_password_file": password_file,
        "allow_unverified_server": "true" if allow_unverified_server else None,
    }
    passwords = {BY_KEYWORD["downstream_password"].environment: environ.get(PASSWORD_VARIABLE, "")}
    try:
        settings, secrets, hidden = load_target(
            {name: value for name, value in options.items() if value is not None},
            {name: value for name, value in passwords.items() if value},
        )
    except ConfigError as error:
        named = (
            str(error)
            .replace("--downstream-uri", "--source")
            .replace("--downstream-password-file", "--source-password-file")
        )
        raise ConfigError(named) from None
    return settings, secrets.password, hidden
