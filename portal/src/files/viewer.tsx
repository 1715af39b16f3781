// What is in a file: text (large ones a window at a time), tables, notebooks, pictures, sound and video; text for editing. A
// page of a user is never drawn as a page: HTML is shown as text.
import { useEffect, useState } from 'preact/hooks';
import { ApiError, errorText } from '../api/client';
import { ask } from '../components/dialog';
import { Grid } from '../components/grid';
import { Empty, Failed, Loading } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { lazy } from '../lib/lazy';
import { parse, separatorOf } from './csv';
import { contentUrl, kindOf, readPart, shown, write, type Entry, type Part, type Place } from './data';
import { Notebook } from './notebook';

const Editor = lazy(() => import('./editor'));
const WINDOW = 256 << 10;
const EDIT_MOST = 2 << 20;
const WHOLE_MOST = 16 << 20;
const ROWS_MOST = 50_000;

function usePart(at: Place, first: number, length: number, again: number): { part: Part | null; error: string; retry: () => void } {
  const [state, set] = useState<{ part: Part | null; error: string }>({ part: null, error: '' });
  const [tries, setTries] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    readPart(at, first, length, abort.signal).then(part => set({ part, error: '' }), (e: unknown) => { if (!abort.signal.aborted) set({ part: null, error: errorText(e) }); });
    return () => abort.abort();
  }, [at.path, at.node, at.job, first, length, again, tries]);
  return { ...state, retry: () => setTries(n => n + 1) };
}

const isBinary = (bytes: Uint8Array): boolean => bytes.subarray(0, 8192).includes(0);

/** The text of bytes, and whether saving it would give the same bytes. */
export function decode(bytes: Uint8Array): { text: string; exact: boolean } {
  try {
    return { text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes), exact: true };
  } catch {
    return { text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes), exact: false };
  }
}

export function Viewer({ at, entry, refresh }: { at: Place; entry: Entry; refresh: () => void }) {
  const name = shown(entry.name);
  const kind = kindOf(entry.name);
  const url = contentUrl(at, true);
  if (entry.type === 'other') return <Empty title={t('files.notPlain')} />;
  if (kind === 'image') return <div class="file-picture"><img class="file-image" src={url} alt={name} /></div>;
  if (kind === 'video') return <video class="file-image" controls preload="metadata" src={url} aria-label={name} />;
  if (kind === 'audio') return <audio controls preload="metadata" src={url} aria-label={name} />;
  return <TextFile key={at.path} at={at} entry={entry} refresh={refresh} />;
}

function TextFile({ at, entry, refresh }: { at: Place; entry: Entry; refresh: () => void }) {
  const kind = kindOf(entry.name);
  const whole = entry.size <= (kind === 'text' ? EDIT_MOST : WHOLE_MOST);
  const [first, setFirst] = useState(0);
  const [again, setAgain] = useState(0);
  const [editing, setEditing] = useState(false);
  const [raw, setRaw] = useState(false);
  const { part, error, retry } = usePart(at, whole ? 0 : first, whole ? WHOLE_MOST : WINDOW, again);
  if (error) return <Failed text={error} retry={retry} />;
  if (!part) return <Loading lines={8} />;
  if (isBinary(part.bytes)) return <Empty title={t('files.binary')}><a href={contentUrl(at)} download>{t('log.download')}</a></Empty>;
  const { text, exact } = decode(part.bytes);
  if (editing) {
    return <Editing at={at} name={entry.name} text={text} version={part.version} close={saved => {
      setEditing(false);
      if (saved) {
        setAgain(n => n + 1);
        refresh();
      }
    }} />;
  }
  const drawn = !raw && kind !== 'text';
  return (
    <div class="stack">
      <div class="tools">
        {whole && entry.size <= EDIT_MOST && <button class="button" disabled={!exact} title={exact ? undefined : t('files.notUtf8')} onClick={() => setEditing(true)}>{t('files.edit')}</button>}
        {kind !== 'text' && <button class="button" aria-pressed={raw} onClick={() => setRaw(!raw)}>{t('files.asText')}</button>}
        {!whole && <Windows part={part} go={setFirst} />}
      </div>
      {drawn && kind === 'table' ? <TableView text={text} whole={part.bytes.length >= part.size} />
        : drawn && kind === 'notebook' && whole ? <Notebook text={text} />
          : <pre class="code file-text" tabIndex={0} aria-label={shown(entry.name)}>{text}</pre>}
    </div>
  );
}

// Large files: where the window is, and the way to others.
function Windows({ part, go }: { part: Part; go: (first: number) => void }) {
  const last = Math.max(0, part.size - WINDOW), end = part.first + part.bytes.length;
  return (
    <>
      <button class="button" disabled={part.first === 0} onClick={() => go(0)}>{t('files.begin')}</button>
      <button class="button" disabled={part.first === 0} onClick={() => go(Math.max(0, part.first - WINDOW))}>{t('files.before')}</button>
      <button class="button" disabled={end >= part.size} onClick={() => go(Math.min(last, part.first + WINDOW))}>{t('files.after')}</button>
      <button class="button" disabled={end >= part.size} onClick={() => go(last)}>{t('files.end')}</button>
      <input class="grow" type="range" min={0} max={last} step={WINDOW} value={part.first} aria-label={t('files.position')}
        onChange={e => go(Number(e.currentTarget.value))} />
      <span class="muted nowrap">{t('files.window', { from: f.bytes(part.first), to: f.bytes(end), size: f.bytes(part.size) })}</span>
    </>
  );
}

function TableView({ text, whole }: { text: string; whole: boolean }) {
  const rows = parse(text, separatorOf(text), ROWS_MOST);
  const [head, ...body] = rows;
  if (!head) return <Empty title={t('files.emptyFile')} />;
  const isNumber = (v: string | undefined) => v !== undefined && v.trim() !== '' && !Number.isNaN(Number(v));
  const columns = head.slice(0, 100).map((title, i) => ({
    key: String(i), title: title || String(i + 1), width: 140, num: isNumber(body[0]?.[i]), cell: (r: string[]) => r[i] ?? '', hint: (r: string[]) => r[i] ?? '',
  }));
  const numbered = body.map((r, i) => ({ r, i }));
  return (
    <>
      {!whole && <p class="muted small">{t('files.firstPart', { n: body.length })}</p>}
      <div class="file-table">
        <Grid label={t('files.table')} total={numbered.length} row={i => numbered[i]} id={x => String(x.i)} height="calc(100vh - 300px)"
          columns={columns.map(c => ({ ...c, cell: (x: { r: string[] }) => c.cell(x.r), hint: (x: { r: string[] }) => c.hint(x.r) }))} />
      </div>
    </>
  );
}

function Editing({ at, name, text, version, close }: { at: Place; name: string; text: string; version: string; close: (saved: boolean) => void }) {
  const [now, setNow] = useState(text);
  const [base, setBase] = useState({ text, version });
  const [saved, setSaved] = useState(false);
  const [error, setError] = useState('');
  const [conflict, setConflict] = useState(false);
  const dirty = now !== base.text;
  useEffect(() => {
    if (!dirty) return undefined;
    const stay = (e: BeforeUnloadEvent) => e.preventDefault();
    addEventListener('beforeunload', stay);
    return () => removeEventListener('beforeunload', stay);
  }, [dirty]);
  const save = async (over = false) => {
    setError('');
    try {
      const answer = await write(at, now, over ? {} : { match: base.version });
      setBase({ text: now, version: answer.entry?.version ?? '' });
      setSaved(true);
      setConflict(false);
      notify(t('files.saved', { name: shown(name) }));
    } catch (e) {
      if (e instanceof ApiError && e.status === 412) setConflict(true);
      else setError(errorText(e));
    }
  };
  const leave = () => {
    if (!dirty) close(saved);
    else ask({ title: t('files.discardTitle'), body: t('files.discard'), yes: t('files.discardYes'), danger: true, act: async () => close(saved) });
  };
  return (
    <div class="stack">
      <div class="tools">
        <button class="button primary" disabled={!dirty} onClick={() => void save()}>{t('action.save')}</button>
        <button class="button" onClick={leave}>{t('action.close')}</button>
        <span class="muted" role="status">{dirty ? t('files.unsaved') : ''}</span>
      </div>
      {conflict && (
        <div class="banner warning" role="alert">
          <span class="grow">{t('files.conflict')}</span>
          <button class="button" onClick={() => close(true)}>{t('files.takeTheirs')}</button>
          <button class="button danger" onClick={() => void save(true)}>{t('files.keepMine')}</button>
        </div>
      )}
      {error && <div class="bad" role="alert">{error}</div>}
      <Editor name={name} label={shown(name)} text={text} changed={setNow} save={() => void save()} />
    </div>
  );
}
