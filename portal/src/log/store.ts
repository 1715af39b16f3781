// The lines of a log as bytes: a million of them cost their bytes and twelve more each, and are decoded only when shown.
// Beyond a budget the oldest lines go; the viewer says so.
const BLOCK_BITS = 20;
const BLOCK = 1 << BLOCK_BITS;
const BYTES_MOST = 256 << 20;
const SHOWN_MOST = 4096;  // bytes of one line that are shown
const NEWLINE = 10;

/* eslint-disable-next-line no-control-regex */
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
/* eslint-disable-next-line no-control-regex */
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f]/g;

class Numbers {
  private data = new Float64Array(1024);
  length = 0;
  push(v: number): void {
    if (this.length === this.data.length) {
      const more = new Float64Array(this.data.length * 2);
      more.set(this.data);
      this.data = more;
    }
    this.data[this.length++] = v;
  }
  at(i: number): number {
    return this.data[i]!;
  }
  drop(n: number): void {
    this.data.copyWithin(0, n, this.length);
    this.length -= n;
  }
}

export class LogStore {
  private blocks: Uint8Array[] = [];
  private base = 0;      // position of the first byte kept
  private end = 0;       // position behind the last byte
  private starts = new Numbers();
  private times = new Numbers();
  private readonly decoder = new TextDecoder();
  /** Lines that are no longer kept. */
  dropped = 0;

  /** Lines, counting an unfinished last one. */
  get lines(): number {
    return this.starts.length;
  }

  get bytes(): number {
    return this.end - this.base;
  }

  clear(): void {
    this.blocks = [];
    this.base = this.end = 0;
    this.starts = new Numbers();
    this.times = new Numbers();
    this.dropped = 0;
  }

  /** at_ms: when the bytes came; 0: not known. */
  append(data: Uint8Array, at_ms: number): void {
    let open = this.starts.length > 0 && this.end > this.base && this.byte(this.end - 1) !== NEWLINE;
    for (let i = 0; i < data.length;) {
      if (!open) {
        this.starts.push(this.end + i);
        this.times.push(at_ms);
      }
      const next = data.indexOf(NEWLINE, i);
      open = next < 0;
      i = next < 0 ? data.length : next + 1;
    }
    this.copy(data);
    if (this.bytes > BYTES_MOST) this.forget();
  }

  private copy(data: Uint8Array): void {
    for (let i = 0; i < data.length;) {
      const at = (this.end - this.base) & (BLOCK - 1);
      const n = (this.end - this.base) >> BLOCK_BITS;
      const block = (this.blocks[n] ??= new Uint8Array(BLOCK));
      const part = data.subarray(i, i + BLOCK - at);
      block.set(part, at);
      i += part.length;
      this.end += part.length;
    }
  }

  private forget(): void {
    const blocks = this.blocks.length >> 2;
    this.blocks.splice(0, blocks);
    this.base += blocks * BLOCK;
    let n = 0;
    while (n < this.starts.length && this.starts.at(n) < this.base) n++;
    this.starts.drop(n);
    this.times.drop(n);
    this.dropped += n;
  }

  private byte(position: number): number {
    const p = position - this.base;
    return this.blocks[p >> BLOCK_BITS]![p & (BLOCK - 1)]!;
  }

  private slice(from: number, to: number): Uint8Array {
    const out = new Uint8Array(to - from);
    for (let p = from; p < to;) {
      const at = (p - this.base) & (BLOCK - 1);
      const part = this.blocks[(p - this.base) >> BLOCK_BITS]!.subarray(at, Math.min(BLOCK, at + to - p));
      out.set(part, p - from);
      p += part.length;
    }
    return out;
  }

  private bounds(i: number): [number, number] {
    const from = this.starts.at(i);
    const to = i + 1 < this.starts.length ? this.starts.at(i + 1) : this.end;
    return [from, to];
  }

  time(i: number): number {
    return this.times.at(i);
  }

  /** A line for people: without colours and controls, of a progress bar its last state. */
  text(i: number): string {
    const [from, to] = this.bounds(i);
    const cut = to - from > SHOWN_MOST;
    let s = this.decoder.decode(this.slice(from, cut ? from + SHOWN_MOST : to)).replace(/\r?\n$/, '');
    s = s.replace(ESCAPES, '').replace(/\r+$/, '');
    const bar = s.lastIndexOf('\r');
    if (bar >= 0) s = s.slice(bar + 1);
    return s.replace(CONTROLS, '·') + (cut ? ' …' : '');
  }

  /**
   * Looks for a text, without regard to the case of ASCII letters, from line `from` for at most `ms`. Calls found with each
   * line that has it; answers the line to go on from, or -1 at the end.
   */
  search(needle: Uint8Array, from: number, ms: number, found: (line: number) => void): number {
    const until = performance.now() + ms;
    for (let line = from; line < this.lines; line++) {
      if ((line & 255) === 255 && performance.now() > until) return line;
      const [a, b] = this.bounds(line);
      if (this.has(needle, a, b)) found(line);
    }
    return -1;
  }

  private has(needle: Uint8Array, from: number, to: number): boolean {
    const lower = (c: number) => (c >= 65 && c <= 90 ? c + 32 : c);
    const first = needle[0]!;
    let p = from - this.base;
    const last = to - this.base - needle.length;
    for (; p <= last; p++) {
      if (lower(this.blocks[p >> BLOCK_BITS]![p & (BLOCK - 1)]!) !== first) continue;
      let k = 1;
      while (k < needle.length && lower(this.blocks[(p + k) >> BLOCK_BITS]![(p + k) & (BLOCK - 1)]!) === needle[k]) k++;
      if (k === needle.length) return true;
    }
    return false;
  }
}
