// Tables as text: fields between separators, in quotes where they hold one. Nothing is an error: what is not well-formed is
// shown as it is.
const SEPARATORS = [',', '\t', ';', '|'];

/** The separator that the first line has most of. */
export function separatorOf(text: string): string {
  const line = text.slice(0, text.indexOf('\n') < 0 ? undefined : text.indexOf('\n'));
  return SEPARATORS.map(s => ({ s, n: line.split(s).length })).sort((a, b) => b.n - a.n)[0]!.s;
}

export function parse(text: string, separator: string, most: number): string[][] {
  const rows: string[][] = [];
  let row: string[] = [], field = '', quoted = false;
  for (let i = 0; i < text.length && rows.length < most; i++) {
    const c = text[i]!;
    if (quoted) {
      if (c === '"' && text[i + 1] === '"') field += text[++i];
      else if (c === '"') quoted = false;
      else field += c;
    } else if (c === '"' && field === '') quoted = true;
    else if (c === separator) {
      row.push(field);
      field = '';
    } else if (c === '\n') {
      row.push(field.endsWith('\r') ? field.slice(0, -1) : field);
      rows.push(row);
      row = [];
      field = '';
    } else field += c;
  }
  if ((field || row.length) && rows.length < most) rows.push([...row, field]);
  return rows;
}
