// A Jupyter notebook, for reading. Its content is hostile: texts stay texts, pictures are drawn as pictures (where no script
// runs), HTML and JavaScript outputs are never shown.
import { Empty } from '../components/states';
import { t } from '../lib/i18n';

interface Output {
  output_type?: unknown;
  text?: unknown;
  data?: Record<string, unknown>;
  ename?: unknown;
  traceback?: unknown;
}
interface Cell {
  cell_type?: unknown;
  source?: unknown;
  outputs?: unknown;
  execution_count?: unknown;
}

const CELLS_MOST = 2000;
const TEXT_MOST = 100_000;
const PICTURE_MOST = 8 << 20;
// eslint-disable-next-line no-control-regex
const ANSI = /\u001b\[[0-9;?]*[A-Za-z]/g;

const lines = (v: unknown): string => {
  const text = Array.isArray(v) ? v.map(x => (typeof x === 'string' ? x : '')).join('') : typeof v === 'string' ? v : '';
  return (text.length > TEXT_MOST ? `${text.slice(0, TEXT_MOST)} …` : text).replace(ANSI, '');
};

/** The address of a picture in the data of an output; null: there is none. */
export function picture(data: Record<string, unknown>): string | null {
  for (const type of ['image/png', 'image/jpeg', 'image/gif', 'image/webp']) {
    const value = data[type];
    const base64 = (Array.isArray(value) ? value.join('') : typeof value === 'string' ? value : '').replace(/\s/g, '');
    if (base64 && base64.length <= PICTURE_MOST && /^[A-Za-z0-9+/]+=*$/.test(base64)) return `data:${type};base64,${base64}`;
  }
  const svg = data['image/svg+xml'];
  const source = Array.isArray(svg) ? svg.join('') : typeof svg === 'string' ? svg : '';
  return source && source.length <= PICTURE_MOST ? `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}` : null;
}

function OutputView({ o }: { o: Output }) {
  const data = typeof o.data === 'object' && o.data !== null ? o.data : {};
  const image = picture(data);
  if (image) return <img class="file-image" src={image} alt={t('files.output')} />;
  if (o.output_type === 'error') return <pre class="code wrap bad">{lines(o.traceback) || lines(o.ename)}</pre>;
  const text = lines(o.text) || lines(data['text/plain']);
  if (text) return <pre class="code wrap">{text}</pre>;
  return 'text/html' in data ? <p class="muted small">{t('files.htmlOutput')}</p> : null;
}

function CellView({ c }: { c: Cell }) {
  const outputs = Array.isArray(c.outputs) ? (c.outputs as unknown[]).filter((o): o is Output => typeof o === 'object' && o !== null) : [];
  if (c.cell_type !== 'code') return <div class="note-text">{lines(c.source)}</div>;
  return (
    <div class="note-code">
      <span class="muted small">[{typeof c.execution_count === 'number' ? c.execution_count : ' '}]</span>
      <div class="stack">
        <pre class="code wrap">{lines(c.source)}</pre>
        {outputs.map((o, i) => <OutputView key={i} o={o} />)}
      </div>
    </div>
  );
}

export function Notebook({ text }: { text: string }) {
  let cells: Cell[] = [];
  try {
    const book = JSON.parse(text) as { cells?: unknown } | null;
    if (Array.isArray(book?.cells)) cells = (book.cells as unknown[]).filter((c): c is Cell => typeof c === 'object' && c !== null);
  } catch {
    return <Empty title={t('files.notNotebook')} />;
  }
  if (cells.length === 0) return <Empty title={t('files.notNotebook')} />;
  return <div class="stack">{cells.slice(0, CELLS_MOST).map((c, i) => <CellView key={i} c={c} />)}</div>;
}
