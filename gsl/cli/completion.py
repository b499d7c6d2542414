"""``gsl completion``: a script by which a shell completes the command line.

The script is made from the parser. Nothing is run when a user presses the tab key, no rules file above all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gsl.cli.command import Command, Exit, Terminal

EXAMPLES = """\
gsl completion bash > ~/.local/share/bash-completion/completions/gsl
gsl completion zsh > ~/.zfunc/_gsl                                  # a folder of your fpath
gsl completion fish > ~/.config/fish/completions/gsl.fish"""
NOTES = """\
To try it in a running shell: eval "$(gsl completion bash)". Make the script anew after an update of GSL."""


@dataclass(frozen=True)
class Option:
    """An option as a shell sees it: its names, its help, and the kind of value that follows it, if one does."""

    names: tuple[str, ...]
    help: str
    takes: bool
    choices: tuple[str, ...] = ()
    files: bool = False


@dataclass(frozen=True)
class Completed:
    """A command as a shell sees it; ``words`` are the arguments that may be given beside files."""

    name: str
    summary: str
    options: tuple[Option, ...]
    words: tuple[str, ...]


def commands_of(parser: argparse.ArgumentParser) -> Iterator[Completed]:
    """The commands of a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, inner in action.choices.items():
                words = [str(word) for part in inner._get_positional_actions() for word in part.choices or ()]
                yield Completed(name, summaries[name], tuple(_options(inner)), tuple(words))


def _options(parser: argparse.ArgumentParser) -> Iterator[Option]:
    for action in parser._get_optional_actions():
        choices = tuple(str(choice) for choice in action.choices or ())
        files = action.type is Path or action.dest == "rules"
        told = (action.help or "").partition(";")[0]
        yield Option(tuple(action.option_strings), told, action.nargs != 0, choices, files)


def bash(commands: list[Completed]) -> str:
    """A script for bash."""
    first = " ".join([*(command.name for command in commands), "--help", "--version"])
    lines = [
        "_gsl() {",
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}",
        "    local words= files=",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f"        COMPREPLY=($(compgen -W '{first}' -- \"$word\"))",
        "        return",
        "    fi",
        '    case "$command $before" in',
    ]
    for command in commands:
        for option in command.options:
            if option.takes:
                cases = " | ".join(f"'{command.name} {name}'" for name in option.names)
                what = "files=1" if option.files else f"words='{' '.join(option.choices)}'"
                lines.append(f"        {cases}) {what} ;;")
    lines += ["        *)", '            case "$command" in']
    for command in commands:
        names = [name for option in command.options for name in option.names]
        lines.append(f"                {command.name}) words='{' '.join([*command.words, *names])}' ;;")
    lines += [
        "            esac",
        '            [ "${word:0:1}" = - ] || files=1',
        "    esac",
        '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "    local IFS=$'\\n'",  # names of files may have spaces
        '    [ -z "$files" ] || COMPREPLY+=($(compgen -f -- "$word"))',
        "}",
        "complete -o filenames -F _gsl gsl",
    ]
    return "\n".join(lines)


def zsh(commands: list[Completed]) -> str:
    """A script for zsh."""
    lines = ["#compdef gsl", "_gsl() {", "    local -a commands", "    commands=("]
    lines += [f"        {_quoted(f'{command.name}:{command.summary}')}" for command in commands]
    lines += [
        "    )",
        "    if (( CURRENT == 2 )); then",
        "        _describe command commands",
        "        return",
        "    fi",
        '    case "${words[2]}" in',
    ]
    for command in commands:
        lines.append(f"        {command.name})")
        lines.append("            shift words; (( CURRENT-- ))")
        lines.append("            _arguments \\")
        for option in command.options:
            lines += [f"                {_quoted(spec)} \\" for spec in _zsh_specs(option)]
        rest = f"*:word:({' '.join(command.words)})" if command.words else "*:file:_files"
        lines += [f"                {_quoted(rest)}", "            ;;"]
    lines += ["    esac", "}", 'if [ "$funcstack[1]" = _gsl ]; then _gsl "$@"; else compdef _gsl gsl; fi']
    return "\n".join(lines)


def _zsh_specs(option: Option) -> Iterator[str]:
    """An option for ``_arguments``, under each of its names."""
    text = option.help.replace("[", "(").replace("]", ")").replace(":", " ")
    values = f":value:({' '.join(option.choices)})" if option.choices else ":value: " * option.takes
    values = ":file:_files" if option.files else values
    for name in option.names:
        yield f"{name}[{text}]{values}"


def fish(commands: list[Completed]) -> str:
    """A script for fish."""
    first = "complete -c gsl -f -n __fish_use_subcommand"
    lines = [f"{first} -l help", f"{first} -l version"]
    for command in commands:
        lines.append(f"{first} -a {command.name} -d {_quoted(command.summary)}")
    for command in commands:
        within = f"complete -c gsl -n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            lines.append(f"{within} -f -a {_quoted(' '.join(command.words))}")
        for option in command.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            values = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -x" * option.takes
            values = " -r -F" if option.files else values
            lines.append(f"{within} {names}{values} -d {_quoted(option.help)}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A text that each of the shells reads as one word."""
    return "'" + text.replace("'", "’").replace("\\", "") + "'"


SHELLS: Mapping[str, Callable[[list[Completed]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
"""The function that writes the script of each shell."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def run(options: argparse.Namespace, terminal: Terminal) -> Exit:
    """Print the script."""
    terminal.line(SHELLS[options.shell](list(commands_of(options.parser()))))
    return Exit.DONE


COMMAND = Command(
    "completion", "Print a script that completes the command line.", _arguments, run, EXAMPLES, NOTES
)
