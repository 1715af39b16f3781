// Checks that every catalogue of texts has the same keys and the same placeholders as the English one.
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

const texts = entry => typeof entry === 'string' ? [entry] : Object.values(entry);
// "{n|job|jobs}" is a word chosen by {n}; without an English counterpart it is a plural that only this language needs.
const placeholders = entry => [...new Set(texts(entry).flatMap(t => t.match(/\{\w+[|}]/g) ?? []).map(p => `${p.slice(0, -1)}}`))].sort().join(' ');

/** All catalogues in the folder against `english`, those of en.json where none are given. */
export function checkCatalogues(folder, english = null) {
  const read = name => JSON.parse(readFileSync(join(folder, name), 'utf8'));
  english ??= read('en.json');
  const findings = [];
  for (const name of readdirSync(folder).filter(n => n.endsWith('.json') && n !== 'en.json')) {
    const other = read(name);
    for (const key of Object.keys(english)) {
      if (!(key in other)) findings.push(`${name}: "${key}" is missing`);
      else if (placeholders(english[key]) !== placeholders(other[key]))
        findings.push(`${name}: "${key}" has placeholders ${placeholders(other[key])}, English has ${placeholders(english[key])}`);
    }
    for (const key of Object.keys(other)) if (!(key in english)) findings.push(`${name}: "${key}" is not in en.json`);
  }
  if (findings.length) throw new Error('catalogues differ:\n  ' + findings.join('\n  '));
}
