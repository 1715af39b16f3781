// Writes TypeScript types from the controller's OpenAPI document, so that a change of the API that the portal does not
// follow is an error of the type check.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';

const refName = ref => ref.split('/').pop();

function union(parts) {
  return [...new Set(parts)].join(' | ') || 'unknown';
}

function typeOf(s, indent = '') {
  if (!s || Object.keys(s).length === 0) return 'unknown';
  if (s.$ref) return refName(s.$ref);
  if (s.const !== undefined) return JSON.stringify(s.const);
  if (s.enum) return union(s.enum.map(v => JSON.stringify(v)));
  const several = s.anyOf ?? s.oneOf;
  if (several) return union(several.map(p => typeOf(p, indent)));
  if (s.allOf) return s.allOf.map(p => typeOf(p, indent)).join(' & ');
  if (Array.isArray(s.type)) return union(s.type.map(t => typeOf({ ...s, type: t }, indent)));
  switch (s.type) {
    case 'string': return 'string';
    case 'integer':
    case 'number': return 'number';
    case 'boolean': return 'boolean';
    case 'null': return 'null';
    case 'array': return s.items ? `(${typeOf(s.items, indent)})[]` : 'unknown[]';
    case 'object': return objectOf(s, indent);
    default: return 'unknown';
  }
}

function objectOf(s, indent) {
  if (!s.properties) return 'Record<string, unknown>';
  const required = new Set(s.required ?? []);
  const lines = Object.entries(s.properties).map(([name, p]) => {
    const doc = p.description ? `${indent}  /** ${p.description.replaceAll('*/', '')} */\n` : '';
    return `${doc}${indent}  ${JSON.stringify(name)}${required.has(name) ? '' : '?'}: ${typeOf(p, indent + '  ')};`;
  });
  return `{\n${lines.join('\n')}\n${indent}}`;
}

function jsonSchema(content) {
  return content?.['application/json']?.schema;
}

function queryOf(operation) {
  const parameters = (operation.parameters ?? []).filter(p => p.in === 'query');
  if (parameters.length === 0) return 'undefined';
  return `{ ${parameters.map(p => `${JSON.stringify(p.name)}${p.required ? '' : '?'}: ${queryType(p.schema)}`).join('; ')} }`;
}

// Truth values are sent as 1 and 0.
function queryType(s) {
  if (s?.enum?.includes('true')) return 'boolean';
  return typeOf(s);
}

function answerOf(operation) {
  const good = Object.entries(operation.responses ?? {}).find(([status]) => status.startsWith('2'));
  return good && jsonSchema(good[1].content) ? typeOf(jsonSchema(good[1].content)) : 'unknown';
}

function routeLines(document) {
  const lines = [];
  for (const [path, methods] of Object.entries(document.paths))
    for (const [method, operation] of Object.entries(methods)) {
      if (!['get', 'post', 'put', 'delete', 'patch'].includes(method)) continue;
      const body = jsonSchema(operation.requestBody?.content);
      lines.push(`  ${JSON.stringify(`${method.toUpperCase()} ${path}`)}: { query: ${queryOf(operation)}; ` +
        `body: ${body ? typeOf(body) : 'undefined'}; answer: ${answerOf(operation)} };`);
    }
  return lines;
}

export function writeApiTypes(document, path) {
  const types = Object.entries(document.components?.schemas ?? {}).map(([name, s]) =>
    s.type === 'object' && s.properties ? `export interface ${name} ${objectOf(s, '')}` : `export type ${name} = ${typeOf(s)};`);
  const text = [
    '// Written by tools/api-types.mjs from `acequiad openapi`; not kept in the repository.',
    ...types,
    '/** "METHOD /path" -> types of its query, body and answer. */',
    `export interface Routes {\n${routeLines(document).join('\n')}\n}`,
  ].join('\n\n') + '\n';
  if (!existsSync(path) || readFileSync(path, 'utf8') !== text) writeFileSync(path, text);
}
