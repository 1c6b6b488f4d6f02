"""The base of everything that is persisted of a job."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

SCHEMA = 4
"""Number of the record format. Raised with every new field: a Master must not drop what it can't read."""


class PersistedRecord(BaseModel):
    """A frozen value that survives JSON and carries the number of its format."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,  # what can't be read may be a secret
        ser_json_inf_nan="strings",  # a loss may be NaN, and must come back as NaN
        ser_json_bytes="base64",
        val_json_bytes="base64",
    )

    record_schema: int = SCHEMA
