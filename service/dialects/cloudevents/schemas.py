"""What the OpenAPI document says of CloudEvents. Bodies and headers are read by the dialect's own code.

The schema of an event is the specification's own (cloudevents.json), with what is forbidden said as well.
"""

from __future__ import annotations

from typing import Any, Final

_TEXT_OR_NULL: Final[dict[str, Any]] = {"type": ["string", "null"], "minLength": 1}

EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "minLength": 1, "format": "uri-reference"},
        "type": {"type": "string", "minLength": 1},
        "datacontenttype": _TEXT_OR_NULL,
        "dataschema": {**_TEXT_OR_NULL, "format": "uri"},
        "subject": _TEXT_OR_NULL,
        "time": {**_TEXT_OR_NULL, "format": "date-time"},
        "partitionkey": {**_TEXT_OR_NULL, "description": "Becomes the record's key."},
        "data": {"description": "Any JSON."},
        "data_base64": {"type": ["string", "null"], "contentEncoding": "base64"},
    },
    "propertyNames": {"pattern": "^([a-z0-9]+|data_base64)$"},
    "additionalProperties": {"type": ["string", "boolean", "integer", "null"]},
}

_EXAMPLE: Final[dict[str, Any]] = {
    "specversion": "1.0",
    "id": "A234-1234-1234",
    "source": "/mycontext",
    "type": "com.example.someevent",
    "partitionkey": "customer-7",
    "datacontenttype": "application/json",
    "data": {"total": 12.5},
}

_HEADERS: Final = (
    ("ce-specversion", "1.0", "In binary mode every event has ce-specversion, ce-id, ce-source and ce-type."),
    ("ce-id", "A234-1234-1234", "Values are percent-encoded UTF-8."),
    ("ce-source", "/mycontext", "A URI-reference."),
    ("ce-type", "com.example.someevent", "Any other attribute has its header likewise: ce-subject, ce-time."),
    ("ce-partitionkey", "customer-7", "Becomes the record's key."),
)

REQUEST: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": name,
            "in": "header",
            "schema": {"type": "string"},
            "example": example,
            "description": description,
        }
        for name, example, description in _HEADERS
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/cloudevents+json": {"schema": EVENT, "example": _EXAMPLE},
            "application/cloudevents-batch+json": {
                "schema": {"type": "array", "items": EVENT},
                "example": [_EXAMPLE],
            },
            "application/json": {
                "schema": {"description": "Binary mode: the event's data. Any media type may stand here."},
                "example": {"total": 12.5},
            },
        },
    },
}
