"""The command `completion`: a script for bash, zsh or fish, made from the tables of commands and options.

The script holds all words, so that no key press starts Python.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType

from storage_consumer.cli.answer import Answer
from storage_consumer.cli.verb import Verb
from storage_consumer.cli.verbs import PROGRAM, VERBS
from storage_consumer.config.option import Option
from storage_consumer.errors import ConfigError
from storage_consumer.telemetry import json_text

_HELP = "help"
_FUNCTION = "_storage_consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """One flag as a shell completes it."""

    names: tuple[str, ...]
    help: str
    takes_value: bool = False
    words: tuple[str, ...] = ()
    """The values to choose from; empty if any value may follow."""
    is_file: bool = False


def answer(options: Mapping[str, object], environ: Mapping[str, str]) -> Answer:
    """Return the script for the shell that ``action`` names, else for the user's; raise `ConfigError` if there is none for that."""
    shell = str(options.get("action") or PurePath(environ.get("SHELL", "")).name)
    if shell not in _SHELLS:
        why = f"$SHELL is {shell}, for which there is no script" if shell else "$SHELL is not set"
        raise ConfigError(f"{why}: name the shell, as in `{PROGRAM} completion bash` ({', '.join(_SHELLS)})")
    text = script(shell)
    return Answer(json_text({"script": text}) if "json" in options else text)


def script(shell: str) -> str:
    """Return the completion script for ``bash``, ``zsh`` or ``fish``."""
    return "\n".join(_SHELLS[shell]()) + "\n"


def flags_of(verb: Verb) -> tuple[Completed, ...]:
    """Return the flags of a command, its own first."""
    own = [
        Completed(names=(flag.name,), help=flag.help, takes_value=bool(flag.metavar), words=flag.words)
        for flag in verb.flags
    ]
    own = [_as_file(flag) if flag.names == ("--output",) else flag for flag in own]
    shared = [_of_option(option) for option in verb.options if option.flag]
    return (*own, *shared, Completed(names=("--help",), help="Show the help of this command."))


def _as_file(flag: Completed) -> Completed:
    return Completed(names=flag.names, help=flag.help, takes_value=True, is_file=True)


def _of_option(option: Option) -> Completed:
    # Words in capitals stand for values: COMMAND|URL.
    words = tuple(option.metavar.split("|")) if "|" in option.metavar and option.metavar.islower() else ()
    return Completed(
        names=tuple(f"--{name}" for name in (option.name, *option.aliases)),
        help=option.help,
        # A switch may stand alone, and takes a value only after "=".
        takes_value=not option.switch,
        words=words,
        is_file=option.metavar == "FILE",
    )


def _first_sentence(text: str) -> str:
    """Return the first sentence of a help text, on one line."""
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def _actions(verb: Verb) -> tuple[str, ...]:
    return tuple(word for word, _ in verb.actions)


def _bash() -> Iterator[str]:
    """Yield the lines for bash 3.2 and later; it needs no package bash-completion."""
    verbs = " ".join((*VERBS, _HELP))
    yield f"# bash completion of {PROGRAM}"
    yield f"{_FUNCTION}() {{"
    yield '  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]-} words=""'
    yield "  COMPREPLY=()"
    # bash splits at "=" by COMP_WORDBREAKS: the value is a word of its own then, after the flag and "=".
    yield '  if [ "$word" = "=" ]; then word=""; elif [ "$before" = "=" ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi'
    yield '  if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'    COMPREPLY=($(compgen -W "{verbs} --help --version" -- "$word")); return'
    yield "  fi"
    yield '  case "$verb:$before" in'
    for verb in VERBS.values():
        for flag in flags_of(verb):
            if flag.takes_value:
                pattern = "|".join(f"{verb.name}:{name}" for name in flag.names)
                yield f"    {pattern}) {_bash_values(flag)}; return ;;"
    yield "  esac"
    yield '  case "$verb" in'
    for verb in VERBS.values():
        flags = " ".join(name for flag in flags_of(verb) for name in flag.names)
        yield f'    {verb.name}) words="{flags}"'
        if verb.actions:
            yield f'      if [ "$COMP_CWORD" -eq 2 ]; then words="{" ".join(_actions(verb))} $words"; fi'
        yield "      ;;"
    yield f'    {_HELP}) if [ "$COMP_CWORD" -eq 2 ]; then words="{" ".join(VERBS)}"; fi ;;'
    yield "  esac"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield f"complete -o filenames -F {_FUNCTION} {PROGRAM}"


def _bash_values(flag: Completed) -> str:
    if flag.is_file:
        # One name a line, since names may hold blanks.
        return 'while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen -f -- "$word")'
    return f'COMPREPLY=($(compgen -W "{" ".join(flag.words)}" -- "$word"))' if flag.words else ":"


def _zsh() -> Iterator[str]:
    """Yield the lines for zsh: a file for ``$fpath``, which may be sourced as well."""
    yield f"#compdef {PROGRAM}"
    yield f"{_FUNCTION}() {{"
    yield "  local -a verbs actions"
    yield "  verbs=("
    for verb in VERBS.values():
        yield f"    {shlex.quote(f'{verb.name}:{_zsh_text(verb.summary)}')}"
    yield f"    '{_HELP}:show the help of a command'"
    yield "  )"
    yield "  if (( CURRENT == 2 )); then"
    yield "    if [[ $words[2] == -* ]]; then compadd -- --help --version; else _describe command verbs; fi"
    yield "    return"
    yield "  fi"
    yield "  local verb=$words[2]"
    yield "  shift words; (( CURRENT-- ))"
    yield "  case $verb in"
    for verb in VERBS.values():
        yield f"    {verb.name})"
        action = f" {shlex.quote('1:action:(' + ' '.join(_actions(verb)) + ')')}" if verb.actions else ""
        specs = [shlex.quote(_zsh_spec(name, flag)) for flag in flags_of(verb) for name in flag.names]
        yield "      _arguments \\\n        " + " \\\n        ".join(specs) + action
        yield "      ;;"
    yield f"    {_HELP}) _describe command verbs ;;"
    yield "  esac"
    yield "}"
    yield f'if [ "$funcstack[1]" = "{_FUNCTION}" ]; then {_FUNCTION} "$@"; else compdef {_FUNCTION} {PROGRAM}; fi'


def _zsh_text(text: str) -> str:
    """Return a text in which nothing means anything to `_arguments`."""
    return text.replace("\\", "\\\\").replace(":", "\\:").replace("[", "(").replace("]", ")")


def _zsh_spec(name: str, flag: Completed) -> str:
    text = _zsh_text(_first_sentence(flag.help))
    if not flag.takes_value:
        return f"{name}[{text}]"
    values = "_files" if flag.is_file else f"({' '.join(flag.words)})" if flag.words else " "
    return f"*{name}=[{text}]:value:{values}"


def _fish() -> Iterator[str]:
    """Yield the lines for fish."""
    yield f"# fish completion of {PROGRAM}"
    yield f"complete -c {PROGRAM} -f"
    first = shlex.quote(f"not __fish_seen_subcommand_from {' '.join((*VERBS, _HELP))}")
    for verb in VERBS.values():
        yield f"complete -c {PROGRAM} -n {first} -a {verb.name} -d {_fish_text(verb.summary)}"
    yield f"complete -c {PROGRAM} -n {first} -a {_HELP} -d 'show the help of a command'"
    yield f"complete -c {PROGRAM} -n {first} -l help -d 'Show the commands.'"
    yield f"complete -c {PROGRAM} -n {first} -s V -l version -d 'Show the versions.'"
    yield f"complete -c {PROGRAM} -n '__fish_seen_subcommand_from {_HELP}' -a '{' '.join(VERBS)}'"
    for verb in VERBS.values():
        # The second word alone decides: actions of one command may be named as another command is.
        seen = shlex.quote(f"test (commandline -opc)[2] = {verb.name} 2>/dev/null")
        second = shlex.quote(f"test (count (commandline -opc)) -eq 2; and test (commandline -opc)[2] = {verb.name}")
        for word, meaning in verb.actions:
            yield f"complete -c {PROGRAM} -n {second} -a {word} -d {_fish_text(meaning)}"
        for flag in flags_of(verb):
            names = " ".join(f"-l {name.removeprefix('--')}" for name in flag.names)
            yield f"complete -c {PROGRAM} -n {seen} {names}{_fish_values(flag)} -d {_fish_text(flag.help)}"


def _fish_values(flag: Completed) -> str:
    if not flag.takes_value:
        return ""
    return " -r -F" if flag.is_file else f" -x -a '{' '.join(flag.words)}'" if flag.words else " -x"


def _fish_text(text: str) -> str:
    escaped = _first_sentence(text).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SHELLS: Mapping[str, Callable[[], Iterator[str]]] = MappingProxyType({"bash": _bash, "zsh": _zsh, "fish": _fish})
