// How many workers: a slider for those that always run, and one for more that run on what others leave idle.
import { useId } from 'preact/hooks';
import { t } from '../lib/i18n';

const LEAST_END = 16;

/** "2-8" and "2" as numbers; null: neither. */
export function workersOf(text: string): { min: number; max: number } | null {
  const m = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text.trim());
  if (!m) return null;
  const min = Number(m[1]), max = Number(m[2] ?? m[1]);
  return max < min ? null : { min, max };
}

export const workersText = (min: number, max: number): string => (max > min ? `${min}-${max}` : String(min));

function Slider({ label, value, end, set, hint }: { label: string; value: number; end: number; set: (v: number) => void; hint?: string }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <div class="slider-row">
        <input id={id} class="slider" type="range" min={0} max={end} step={1} value={value} aria-describedby={hint ? `${id}-about` : undefined} onInput={e => set(Number(e.currentTarget.value))} />
        <input class="input num" type="number" min={0} max={99_999} value={value} aria-label={label} onInput={e => set(Math.max(0, Math.min(99_999, Math.floor(Number(e.currentTarget.value) || 0))))} />
      </div>
      {hint && <div class="hint" id={`${id}-about`}>{hint}</div>}
    </div>
  );
}

export function WorkersField({ value, set, problem }: { value: string; set: (v: string) => void; problem?: string | undefined }) {
  const { min, max } = workersOf(value) ?? { min: 1, max: 1 };
  const end = Math.max(LEAST_END, 2 ** Math.ceil(Math.log2(Math.max(1, max))));
  return (
    <div class="stack">
      <Slider label={t('workers.always')} value={min} end={end} set={v => set(workersText(v, max > min ? Math.max(v, max) : v))} />
      <Slider label={t('workers.most')} value={max} end={end} set={v => set(workersText(Math.min(min, v), v))} hint={t('workers.mostHint')} />
      {problem && <div class="problem bad" role="alert">{problem}</div>}
    </div>
  );
}
