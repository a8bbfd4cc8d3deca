"""Why a node cannot be talked to, told apart so that each reason has its own remedy."""

from __future__ import annotations

from dataclasses import dataclass

from console.strings import _

HINTS = {
    "unreachable": _("Is the machine up, and the network between here and there?"),
    "dns": _("Correct the host name in fleet.yaml or ~/.ssh/config."),
    "refused": _("Nothing listens on that port: is sshd up, and the port right?"),
    "timeout": _("Is the machine up? A firewall that drops packets looks the same."),
    "config": _("Correct it, then try again; `ssh HOST` must work too."),
    "auth": _("Check user name and key: `ssh -v HOST` shows which keys are tried."),
    "denied": _("The node lets nobody in at present, or only owners of a job on it; ask its administrator."),
    "host-key-unknown": _("Compare the fingerprint with the one your provider shows, then accept it."),
    "host-key-changed": _(
        "Somebody may be listening in, or the machine was set up anew. If you know the latter, remove the old line."
    ),
    "max-startups": _("Its sshd is busy with other log-ins; tunedeck tries again by itself."),
    "incompatible": _("Install the OpenSSH client here: tunedeck then goes through it."),
    "restricted-shell": _("tunedeck needs an account that may run commands; a login shell like bash."),
    "garbled": _("The login shell writes into the conversation; look into its start-up files on the node."),
    "no-python": _("Install Python 3.10 or newer on the node, or set `python:` for it in fleet.yaml."),
    "read-only-home": _("Set `home:` for this node in fleet.yaml to a folder that can be written."),
    "disk-full": _("Free some space there, or set `home:` for this node in fleet.yaml to another disk."),
    "exhausted": _("The account is at a limit of the node: end other programs there, or raise `ulimit -u` and `-n`."),
    "noexec": _("Set `python:` for this node in fleet.yaml to one on a disk that may run programs."),
    "agent-failed": _("The agent's log lies in tunedeck's folder on the node."),
    "protocol": _("Update the older of the two."),
    "limits": _("Raise `ulimit -n` and `ulimit -u`, or close other programs; `df` shows full disks."),
    "broken": _("Open the console again, and report this with what it printed."),
    "lost": _("tunedeck reconnects by itself; runs on the node go on."),
}
LASTING = frozenset(
    {
        "config",
        "dns",
        "auth",
        "denied",
        "host-key-unknown",
        "host-key-changed",
        "incompatible",
        "restricted-shell",
        "garbled",
    }
    | {"no-python", "noexec", "protocol"}
)
"""Kinds that do not pass by themselves: tried again, but rarely."""


@dataclass(frozen=True, slots=True)
class Question:
    """What only the user can answer. `subject` tells apart what is asked: one answer serves all who ask the same."""

    kind: str
    """host-key | passphrase | password | code (good for one log-in: a one-time password, a challenge)"""
    subject: str
    """The fingerprint, the key file, or user@host"""
    text: str
    secret: bool = True
    """What is typed is not shown."""


class Refusal(Exception):
    """A node could not be reached or entered. `kind` is a key of HINTS."""

    def __init__(self, kind: str, message: str, hint: str = "", question: Question | None = None) -> None:
        super().__init__(message)
        self.kind, self.message, self.hint, self.question = kind, message, hint or HINTS[kind], question

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}"


OPENSSH_SAYS = {
    "could not resolve hostname": "dns",
    "connection refused": "refused",
    "connection timed out": "timeout",
    "operation timed out": "timeout",
    "no route to host": "unreachable",
    "network is unreachable": "unreachable",
    "remote host identification has changed": "host-key-changed",
    "revoked host key": "host-key-changed",
    "host key verification failed": "host-key-unknown",
    "pam_slurm_adopt": "denied",
    "permission denied": "auth",
    "too many authentication failures": "auth",
    "kex_exchange_identification": "max-startups",
    "connection closed by": "max-startups",
    "no matching": "incompatible",
}
"""What OpenSSH's client writes to stderr, in lower case, and the kind of refusal it is; the first that fits counts."""


def from_openssh(said: str) -> Refusal | None:
    """What OpenSSH complained about, if that is why it ended."""
    lower = said.lower()
    kind = next((kind for sign, kind in OPENSSH_SAYS.items() if sign in lower), None)
    if kind is None:
        return None
    hint = _("Log in once with `ssh` to accept its key.") if kind == "host-key-unknown" else ""
    return Refusal(kind, said.strip().splitlines()[-1][:300], hint)
