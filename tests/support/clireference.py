"""Render docs/reference/cli.md from the commands themselves."""

from __future__ import annotations

import inspect
from typing import Any

import typer

HEAD = """# The command line

Generated from `federate --help` by tests/unit/test_drift.py (`FEDERATE_WRITE_DOCS=1`). Wrong values
end a command with exit code 2 and one line for each.
"""


def render_cli_reference(app: typer.Typer) -> str:
    """Render every command with its arguments and options."""
    parts = [HEAD]
    for name, command in sorted(commands_of(app).items()):
        if not command.hidden:
            parts.append(_render(f"federate {name}", command))
    return "\n".join(parts)


def commands_of(app: typer.Typer) -> dict[str, Any]:
    """Return the commands by name, untyped: newer typers bring a click of their own."""
    root: Any = typer.main.get_command(app)
    return dict(root.commands)


def _render(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join([name, *(_placeholder(a) for a in arguments)])
    lines = [f"## {name}", "", f"`{usage}{' [OPTIONS]' if options else ''}`", ""]
    lines += [inspect.cleandoc(command.help or ""), ""]
    if command.params:
        lines += ["| | default | |", "|---|---|---|"]
        lines += [_row(parameter) for parameter in (*arguments, *options)]
        lines.append("")
    return "\n".join(lines)


def _row(parameter: Any) -> str:
    default = parameter.default
    shown = "" if default in (None, "", (), []) or callable(default) else _code(_plain(default))
    if parameter.required:
        shown = "needed"
    help_text = " ".join((getattr(parameter, "help", "") or "").split()).replace("|", "\\|")
    variable = parameter.envvar
    if variable:
        help_text += f" Or: the variable `{variable}`."
    return f"| {_code(_name(parameter))} | {shown} | {help_text} |"


def _code(text: str) -> str:
    # A bar ends the cell, in code too.
    return "`" + text.replace("|", "\\|") + "`"


def _plain(default: object) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return str(default)


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _placeholder(parameter)
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    if getattr(parameter, "is_flag", False):
        return names
    return f"{names} {_placeholder(parameter)}"


def _placeholder(parameter: Any) -> str:
    choices = getattr(getattr(parameter, "type", None), "choices", ())
    # A metavar of typer's own making would be TEXT, which says nothing.
    return parameter.metavar or "|".join(map(str, choices)) or (parameter.name or "").upper()
