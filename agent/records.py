"""Progress records in words and figures."""

from __future__ import annotations

from typing import Any


def describe(kind: str, record: dict[str, Any]) -> tuple[str, str] | None:
    """Severity and text of the event a record makes; None for records that are only figures."""
    message = str(record.get("message") or "")
    if kind == "warning":
        return "warn", message
    if kind == "error":
        hint = str(record.get("hint") or "")
        secondary = " (because of another rank)" if record.get("secondary") else ""
        return "critical", f"rank {record.get('rank')}: {message}{secondary}" + (f". {hint}" if hint else "")
    if kind == "order":
        return "info", f"{record.get('verb')}: {record.get('outcome')} at step {record.get('step')}"
    if kind == "rollback":
        return "warn", f"rolled back from step {record.get('from_step')} to step {record.get('to_step')}"
    if kind == "resume":
        reasons = "; ".join(str(one) for one in record.get("reasons") or ())
        text = f"goes on at step {record.get('to_step')} from {record.get('snapshot')}: {record.get('badge')}"
        return ("warn" if reasons else "info"), text + (f" ({reasons})" if reasons else "")
    if kind == "snapshot" and record.get("state") == "failed":
        hint = str(record.get("hint") or "")
        return "warn", f"{message or 'a snapshot failed'} (step {record.get('step')})" + (f". {hint}" if hint else "")
    return None


def whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def real(value: Any) -> float | None:
    """A figure of a record; NaN and infinities are spelled as words there."""
    if isinstance(value, str):
        return float(value) if value in ("nan", "inf", "-inf") else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
