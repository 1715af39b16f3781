// A table of any length: only the rows in view are in the document. Rows may be not loaded yet; `need` says which are in
// view. A real <table>, so that screen readers find rows, columns and their numbers. Keys: arrows, Page Up and Down, Home, End
// move; Space selects, with Shift a range; Enter opens; Ctrl+A selects all that are loaded.
import { Component, type ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { t } from '../lib/i18n';

export interface Column<T> {
  key: string;
  title: string;
  /** Width in pixels; the columns without one share the rest. */
  width?: number;
  num?: boolean;
  /** Only where there is room. */
  wide?: boolean;
  sort?: string;
  cell: (row: T) => ComponentChildren;
  hint?: (row: T) => string;
}

export interface Sort {
  column: string;
  down: boolean;
}

export interface GridProps<T> {
  label: string;
  columns: Column<T>[];
  total: number;
  row: (i: number) => T | undefined;
  id: (row: T) => string;
  need?: (first: number, last: number) => void;
  open?: (row: T) => void;
  selected?: ReadonlySet<string>;
  select?: (ids: Set<string>) => void;
  /** What a row is called for its checkbox. */
  rowLabel?: (row: T) => string;
  sort?: Sort;
  setSort?: (s: Sort) => void;
  height?: string;
  empty?: ComponentChildren;
}

const ROW = 36;
const HEAD = 37;
const OVERSCAN = 6;
const ROWS_MOST = 500_000;  // browsers draw no element higher than about 33,000,000 pixels

export function Grid<T>(p: GridProps<T>) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [cursor, setCursor] = useState(0);
  const anchor = useRef(0);
  const focusNext = useRef(false);
  const total = Math.min(p.total, ROWS_MOST);
  const first = Math.max(0, Math.floor(top / ROW) - OVERSCAN);
  const last = Math.min(total, Math.ceil((top + height) / ROW) + OVERSCAN);

  useLayoutEffect(() => {
    const b = box.current!;
    const size = () => setHeight(b.clientHeight || 600);
    size();
    const watch = new ResizeObserver(size);
    watch.observe(b);
    return () => watch.disconnect();
  }, []);
  useEffect(() => p.need?.(first, last), [first, last, total]);
  useEffect(() => {
    if (!focusNext.current) return;
    focusNext.current = false;
    box.current?.querySelector<HTMLElement>(`tr[data-row="${cursor}"]`)?.focus({ preventScroll: true });
  });

  const at = Math.min(cursor, Math.max(0, total - 1));
  const move = (to: number) => {
    const n = Math.max(0, Math.min(total - 1, to));
    const b = box.current!;
    if (n * ROW < b.scrollTop) b.scrollTop = n * ROW;
    else if ((n + 1) * ROW + HEAD > b.scrollTop + b.clientHeight) b.scrollTop = (n + 1) * ROW + HEAD - b.clientHeight;
    focusNext.current = true;
    setCursor(n);
    setTop(b.scrollTop);
  };
  const toggle = (i: number, range: boolean) => {
    if (!p.select) return;
    const chosen = new Set(p.selected);
    const from = range ? Math.min(anchor.current, i) : i, to = range ? Math.max(anchor.current, i) : i;
    const one = p.row(i);
    const on = range || !(one && chosen.has(p.id(one)));
    for (let n = from; n <= to; n++) {
      const r = p.row(n);
      if (r && on) chosen.add(p.id(r));
      else if (r) chosen.delete(p.id(r));
    }
    anchor.current = i;
    p.select(chosen);
  };
  const loaded = () => {
    const ids = new Set<string>();
    for (let i = 0; i < total; i++) {
      const r = p.row(i);
      if (r) ids.add(p.id(r));
    }
    return ids;
  };
  const keys = (e: KeyboardEvent) => {
    if ((e.target as HTMLElement).tagName !== 'TR') return;
    const page = Math.max(1, Math.floor(height / ROW) - 2);
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: total - 1 };
    const to = steps[e.key];
    if (to !== undefined) {
      e.preventDefault();
      move(to);
      if (e.shiftKey) toggle(Math.max(0, Math.min(total - 1, to)), true);
    } else if (e.key === ' ') {
      e.preventDefault();
      toggle(at, e.shiftKey);
    } else if (e.key === 'Enter') {
      const r = p.row(at);
      if (r) p.open?.(r);
    } else if (e.key === 'a' && (e.ctrlKey || e.metaKey) && p.select) {
      e.preventDefault();
      p.select(loaded());
    }
  };
  const width = p.columns.length + (p.select ? 1 : 0);
  // Rows keep their elements and are given other texts while the table scrolls: row i is drawn in slot i mod `slots`.
  const slots = useRef(1);
  slots.current = Math.max(slots.current, last - first);
  const doing = useRef({ toggle, focus: setCursor, open: p.open, label: p.rowLabel });
  doing.current = { toggle, focus: setCursor, open: p.open, label: p.rowLabel };
  const chosenCount = p.selected?.size ?? 0;

  return (
    <div class="grid" ref={box} style={{ height: total ? `min(${p.height ?? 'calc(100vh - 190px)'}, ${HEAD + total * ROW + 2}px)` : undefined, minHeight: '260px' }} onKeyDown={keys}
      onScroll={e => setTop(e.currentTarget.scrollTop)} tabIndex={total ? -1 : 0} role="region" aria-label={p.label}>
      <table aria-label={p.label} aria-rowcount={total + 1} aria-multiselectable={p.select ? true : undefined} role="grid">
        <colgroup>
          {p.select && <col style={{ width: '40px' }} />}
          {p.columns.map(c => <col key={c.key} class={c.wide ? 'wide-only' : undefined} style={c.width ? { width: `${c.width}px` } : undefined} />)}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {p.select && (
              <th scope="col"><input type="checkbox" aria-label={t('table.selectAll')} checked={chosenCount > 0}
                onChange={() => p.select!(chosenCount ? new Set() : loaded())} /></th>
            )}
            {p.columns.map(c => <Heading key={c.key} c={c} sort={p.sort} setSort={p.setSort} />)}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr class="space" aria-hidden="true"><td colSpan={width} style={{ height: `${first * ROW}px` }} /></tr>}
          {Array.from({ length: Math.max(0, last - first) }, (_, k) => {
            const i = first + k, r = p.row(i);
            const slot = i % slots.current;
            if (!r) return <tr key={`hole${slot}`} class="item" aria-rowindex={i + 2}><td colSpan={width}><div class="bone" /></td></tr>;
            return <Row key={slot} i={i} row={r} on={p.selected?.has(p.id(r)) ?? false} current={i === at} columns={p.columns} select={p.select !== undefined} id={p.id} doing={doing} />;
          })}
          {last < total && <tr class="space" aria-hidden="true"><td colSpan={width} style={{ height: `${(total - last) * ROW}px` }} /></tr>}
        </tbody>
      </table>
      {total === 0 && p.empty}
    </div>
  );
}

interface Doing<T> {
  toggle: (i: number, range: boolean) => void;
  focus: (i: number) => void;
  open: ((row: T) => void) | undefined;
  label: ((row: T) => string) | undefined;
}

interface RowProps<T> {
  i: number;
  row: T;
  on: boolean;
  current: boolean;
  select: boolean;
  columns: Column<T>[];
  id: (row: T) => string;
  /** Read when something is done, so a new function is no reason to draw the row again. */
  doing: { current: Doing<T> };
}

/** One row; drawn again only when what it shows is another. */
class Row<T> extends Component<RowProps<T>> {
  override shouldComponentUpdate(n: RowProps<T>): boolean {
    const p = this.props;
    return n.row !== p.row || n.i !== p.i || n.on !== p.on || n.current !== p.current || n.columns !== p.columns || n.select !== p.select;
  }

  override render({ i, row, on, current, select, columns, id, doing }: RowProps<T>) {
    return (
      <tr class="item" data-row={i} aria-rowindex={i + 2} tabIndex={current ? 0 : -1} aria-selected={select ? on : undefined}
        onFocus={e => e.target === e.currentTarget && doing.current.focus(i)} onDblClick={() => doing.current.open?.(row)}>
        {select && (
          <td><input type="checkbox" tabIndex={-1} checked={on} aria-label={doing.current.label?.(row) ?? id(row)}
            onClick={e => { e.preventDefault(); doing.current.toggle(i, e.shiftKey); }} /></td>
        )}
        {columns.map(c => (
          <td key={c.key} class={[c.num ? 'num' : '', c.wide ? 'wide-only' : ''].join(' ').trim() || undefined} title={c.hint?.(row)}>{c.cell(row)}</td>
        ))}
      </tr>
    );
  }
}

function Heading<T>({ c, sort, setSort }: { c: Column<T>; sort: Sort | undefined; setSort: ((s: Sort) => void) | undefined }) {
  const mine = c.sort !== undefined && sort?.column === c.sort;
  const next = () => setSort!({ column: c.sort!, down: mine ? !sort!.down : false });
  return (
    <th scope="col" class={[c.num ? 'num' : '', c.wide ? 'wide-only' : ''].join(' ').trim() || undefined}
      aria-sort={mine ? (sort!.down ? 'descending' : 'ascending') : undefined}>
      {c.sort && setSort ? <button class="sort" type="button" onClick={next}>{c.title}</button> : c.title}
    </th>
  );
}
