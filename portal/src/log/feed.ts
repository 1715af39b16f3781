// Bytes of a job's log, from the WebSocket of GET /v1/jobs/{job}/logs: resumes where it was after a lost connection.
import { address, socket } from '../api/client';

export interface FeedOptions {
  job: string;
  source: 'output' | 'error';
  node: number;
  attempt: number;
  /** Only so many of the last lines; -1: all. */
  tail: number;
}

export interface FeedEvents {
  /** at_ms: when they were written, by the node's clock; 0: not known. */
  data: (bytes: Uint8Array, at_ms: number) => void;
  /** The log begins anew: emptied, or another file. */
  restart: () => void;
  note: (text: string) => void;
  ended: (state: string) => void;
  failed: (text: string) => void;
}

const HEAD = 17;  // kind, rank, stream, position
const RETRY_FIRST_MS = 500;
const RETRY_MOST_MS = 10_000;

export class LogFeed {
  private ws: WebSocket | null = null;
  private at = 0;
  private file = 0;
  private time = 0;
  private begun = false;
  private over = false;
  private retryMs = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly o: FeedOptions, private readonly on: FeedEvents) {
    this.open();
  }

  stop(): void {
    this.over = true;
    clearTimeout(this.timer);
    this.ws?.close();
  }

  private open(): void {
    const query: Record<string, unknown> = { follow: true, times: true, node: this.o.node || undefined, attempt: this.o.attempt || undefined };
    if (this.o.source === 'error') query['source'] = 'error';
    if (this.begun) Object.assign(query, { from: this.at, file: this.file || undefined });
    else if (this.o.tail >= 0) query['tail'] = this.o.tail;
    const ws = socket(address('/v1/jobs/{job}/logs', { job: this.o.job }, query));
    this.ws = ws;
    this.time = 0;
    ws.onmessage = m => (typeof m.data === 'string' ? this.text(m.data) : this.bytes(m.data as ArrayBuffer));
    ws.onclose = () => this.closed();
  }

  private bytes(data: ArrayBuffer): void {
    const view = new DataView(data);
    const kind = view.getUint8(0);
    if ((kind !== 5 && kind !== 6) || data.byteLength < HEAD) return;
    this.at = Number(view.getBigUint64(9, true));
    this.begun = true;
    this.retryMs = 0;
    this.on.data(new Uint8Array(data, HEAD), this.time);
  }

  private text(data: string): void {
    const m = JSON.parse(data) as Record<string, unknown>;
    if (m['error']) {
      this.over = true;
      this.on.failed((m['error'] as { message: string }).message);
    } else if ('time_ms' in m) this.time = Number(m['time_ms']);
    else if ('file' in m) {
      if (this.begun && Number(m['file']) !== this.file && Number(m['at']) === 0) this.on.restart();
      this.file = Number(m['file']);
      this.at = Number(m['at']);
      this.begun = true;
    } else if ('missing' in m) this.on.note(String(m['missing']));
    else if ('exit_code' in m) {
      this.over = true;
      this.on.ended(String(m['state']));
    }
  }

  private closed(): void {
    if (this.over) return;
    this.retryMs = Math.min(RETRY_MOST_MS, this.retryMs ? this.retryMs * 2 : RETRY_FIRST_MS);
    this.timer = setTimeout(() => this.open(), this.retryMs);
  }
}
