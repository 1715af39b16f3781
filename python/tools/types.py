#!/usr/bin/env python3
"""Writes acequia/types.py from the OpenAPI document: acequiad openapi | python/tools/types.py > python/acequia/types.py"""
import sys

sys.path = [p for p in sys.path if not p.endswith("tools")]  # json needs the standard library's module of this name
import json  # noqa: E402  pylint: disable=wrong-import-position

WANTED = ["Job", "JobRow", "NodeStatus", "Share", "Status", "Why", "When"]
LEFT_OUT = {"EventList", "PolicySettings", "SpecRequest"}  # large, and only shown: any value
WORDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def kind(schema, used):
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name in LEFT_OUT:
            return "Any"
        used.append(name)
        return f'"{name}"'
    if "anyOf" in schema:
        return "Union[" + ", ".join(kind(s, used) for s in schema["anyOf"]) + "]"
    of = schema.get("type")
    if isinstance(of, list):
        return "Union[" + ", ".join(kind({**schema, "type": one}, used) for one in of) + "]"
    if of == "array":
        return f"List[{kind(schema.get('items', {}), used)}]"
    return WORDS.get(of, "Dict[str, Any]" if of == "object" else "Any")


def main():
    schemas = json.load(sys.stdin)["components"]["schemas"]
    print('"""Answers of the API, written from its OpenAPI document by tools/types.py; do not edit."""')
    print("from typing import Any, Dict, List, TypedDict, Union\n")
    todo, done = list(WANTED), set()
    while todo:
        name = todo.pop(0)
        if name in done:
            continue
        done.add(name)
        print(f'{name} = TypedDict("{name}", {{')
        for field, schema in schemas[name].get("properties", {}).items():
            print(f'    "{field}": {kind(schema, todo)},')
        print("}, total=False)" if "Request" in name else "})")


main()
