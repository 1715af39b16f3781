// The rows of the job table: pages of GET /v1/table, fetched as they come into view and kept fresh. A page is known by the
// cursor it begins at, so it can be fetched again while jobs come and go.
import { signal } from '@preact/signals';
import { address, errorText, send } from '../api/client';
import { liveSince, onJobs, onReload } from '../api/live';
import type { JobRow, TablePage } from '../api/types';
import type { Sort } from '../components/grid';
import { named } from '../lib/masked';

export interface Filter {
  search: string;
  state: string;
  user: string;
  project: string;
  mine: boolean;
  where: string;
  elements: boolean;
  sort: Sort;
}

interface Page {
  after: string | null;
  rows: JobRow[];
  next: string | null;
  old: boolean;
}

/** Stands for a state: jobs that are not submitted yet, which the table of the controller does not have. */
export const DRAFTS = 'DRAFT';
const PAGE = 250;
const PATCH_MS = 2000;

export class JobRows {
  readonly total = signal(0);
  readonly jobs = signal(0);
  readonly states = signal<Record<string, number>>({});
  readonly complete = signal(true);
  readonly error = signal('');
  readonly loaded = signal(false);
  /** Counts changes of the rows: reading it draws the table again. */
  readonly changed = signal(0);
  private pages: Page[] = [];
  private flat: JobRow[] = [];
  private readonly seen = new Set<number>();  // ids in `flat`
  private view: [number, number] = [0, 60];
  private busy = false;
  private seq = 0;  // of the oldest page that is shown
  private stopped = false;
  private abort = new AbortController();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly offs: Array<() => void>;

  constructor(private readonly filter: Filter) {
    this.offs = [
      onJobs(e => this.take(e.jobs)),
      onReload(() => this.refresh()),
      liveSince.subscribe(seq => this.seq > 0 && seq > this.seq && this.refresh()),
    ];
    if (filter.state === DRAFTS) this.loaded.value = true;
    else void this.work();
  }

  stop(): void {
    this.stopped = true;
    this.abort.abort();
    clearTimeout(this.timer);
    for (const f of this.offs) f();
  }

  row(i: number): JobRow | undefined {
    return this.flat[i];
  }

  rowsOf(ids: ReadonlySet<string>): JobRow[] {
    if (ids.size === 0) return [];
    return this.flat.filter(r => ids.has(String(r.id)));
  }

  need(first: number, last: number): void {
    this.view = [first, last];
    void this.work();
  }

  /** What is in view is fetched again, the rest when it comes into view. */
  refresh(): void {
    for (const p of this.pages) p.old = true;
    void this.work();
  }

  // Rows that changed are shown at once; what a change does to order, counts and folded arrays is fetched a little later.
  private take(rows: JobRow[]): void {
    if (rows.length === 0) return;
    const changed = new Map(rows.map(r => [r.id, r]));
    let any = false;
    for (const p of this.pages)
      p.rows = p.rows.map(r => {
        const n = r.array ? undefined : changed.get(r.id);
        any ||= n !== undefined;
        return n ? { ...r, ...n } : r;
      });
    if (any) this.flatten();
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.refresh();
    }, PATCH_MS);
  }

  // A row that moved from one page to another while both were fetched is in both: it is shown once.
  private flatten(from = 0): void {
    if (from === 0) {
      this.flat = [];
      this.seen.clear();
    }
    for (const p of this.pages.slice(from))
      for (const r of p.rows)
        if (!this.seen.has(r.id)) {
          this.seen.add(r.id);
          this.flat.push(r);
        }
    this.changed.value++;
  }

  private next(): Page | null {
    const [first, last] = this.view;
    let at = 0;
    for (const p of this.pages) {
      const end = at + p.rows.length;
      if (p.old && at <= last && end >= first) return p;
      at = end;
    }
    const tail = this.pages.at(-1);
    if (!tail) return { after: null, rows: [], next: null, old: true };
    return at <= last && tail.next !== null ? { after: tail.next, rows: [], next: null, old: true } : null;
  }

  private async work(): Promise<void> {
    if (this.filter.state === DRAFTS || this.busy || this.stopped || (document.hidden && this.loaded.value)) return;
    this.busy = true;
    try {
      for (let p = this.next(); p && !this.stopped; p = this.next()) await this.fetch(p);
      this.error.value = '';
    } catch (e) {
      if (!this.stopped) this.error.value = errorText(e);
    }
    this.busy = false;
  }

  private async fetch(p: Page): Promise<void> {
    const f = this.filter;
    const query = {
      search: f.search, state: f.state, user: f.user, project: f.project, mine: f.mine || undefined, where: f.where, elements: f.elements || undefined,
      sort: (f.sort.down ? '-' : '') + f.sort.column, limit: PAGE, after: p.after ?? undefined,
    };
    const answer = (await (await send('GET', address('/v1/table', {}, query), undefined, this.abort.signal)).json()) as TablePage;
    if (this.stopped) return;
    const at = this.pages.indexOf(p);
    p.rows = answer.rows.map(named);
    p.old = answer.seq < liveSince.value;  // what happened before the stream began is missing
    this.seq = answer.seq;
    if (at < 0) this.pages.push(p);
    else if (p.next !== answer.next && this.pages[at + 1]) {
      // Rows moved over the border of the page: the following pages begin elsewhere now.
      this.pages[at + 1]!.after = answer.next;
      for (const q of this.pages.slice(at + 1)) q.old = true;
      if (answer.next === null) this.pages.length = at + 1;
    }
    p.next = answer.next;
    this.total.value = answer.total;
    this.jobs.value = answer.jobs;
    this.states.value = answer.states;
    this.complete.value = answer.complete;
    this.loaded.value = true;
    this.flatten(at < 0 ? this.pages.length - 1 : 0);  // a page behind the others changes nothing in them
  }
}
