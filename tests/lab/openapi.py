"""An OpenAPI 3.1 document as a checker of answers: the part of JSON Schema that the controller's document uses."""
import json
import re

KEYWORDS = {"$ref", "anyOf", "oneOf", "type", "enum", "const", "properties", "required", "additionalProperties", "items",
            "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "description"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def _is(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


class Document:
    """`problems(schema, value)` lists what is wrong with a value; `operations()` walks the document."""

    def __init__(self, text):
        self.root = json.loads(text)
        self.schemas = self.root["components"]["schemas"]

    def operations(self):
        """(method, path, operation) of every route."""
        for path, item in self.root["paths"].items():
            for method, operation in item.items():
                yield method.upper(), path, operation

    def resolve(self, schema):
        """The schema itself, or the one it refers to."""
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"].removeprefix("#/components/schemas/")]
        return schema

    def problems(self, schema, value, where="$"):
        """Sentences; none when the value is as the schema says."""
        schema = self.resolve(schema)
        unknown = set(schema) - KEYWORDS
        if unknown:
            return [f"{where}: the checker does not know {sorted(unknown)}"]
        for word, least in (("anyOf", 1), ("oneOf", 1)):
            if word in schema:
                tried = [self.problems(s, value, where) for s in schema[word]]
                fits = sum(not p for p in tried)
                if fits < least or (word == "oneOf" and fits > 1):
                    return min(tried, key=len) or [f"{where}: fits {fits} of {word}"]
        if "const" in schema and value != schema["const"]:
            return [f"{where}: {value!r} is not {schema['const']!r}"]
        names = schema.get("type", [])
        names = [names] if isinstance(names, str) else names
        if names and not any(_is(value, n) for n in names):
            return [f"{where}: {str(value)[:60]!r} is not {' or '.join(names)}"]
        if value is not None and "enum" in schema and value not in schema["enum"]:
            return [f"{where}: {value!r} is not one of {schema['enum']}"]
        return self._inside(schema, value, where)

    def _inside(self, schema, value, where):
        found = []
        if isinstance(value, bool) or value is None:
            return found
        if isinstance(value, (int, float)):
            if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
                found.append(f"{where}: {value} is out of range")
        elif isinstance(value, str):
            if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
                found.append(f"{where}: {len(value)} characters")
            if "pattern" in schema and not re.search(schema["pattern"], value):
                found.append(f"{where}: {value!r} does not match {schema['pattern']}")
        elif isinstance(value, list):
            if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
                found.append(f"{where}: {len(value)} items")
            for i, item in enumerate(value):
                found += self.problems(schema.get("items", {}), item, f"{where}[{i}]")
        elif isinstance(value, dict):
            properties = schema.get("properties", {})
            found += [f"{where}: {k} is missing" for k in schema.get("required", []) if k not in value]
            for key, inner in value.items():
                if key in properties:
                    found += self.problems(properties[key], inner, f"{where}.{key}")
                elif schema.get("additionalProperties") is False:
                    found.append(f"{where}: {key} is not in the document")
        return found
