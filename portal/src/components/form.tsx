// Fields of forms: a label, the control, a hint, the problem that the controller names.
import { useId } from 'preact/hooks';

interface Common {
  label: string;
  hint?: string | undefined;
  problem?: string | undefined;
}

function About({ id, hint, problem }: { id: string; hint?: string | undefined; problem?: string | undefined }) {
  if (problem) return <div class="problem" id={`${id}-about`} role="alert">{problem}</div>;
  return hint ? <div class="hint" id={`${id}-about`}>{hint}</div> : null;
}

export function TextField({ label, value, set, hint, problem, type = 'text', autocomplete, required, placeholder, focus }: Common & {
  /** Has the focus when a dialog with it opens. */
  focus?: boolean;
  value: string;
  set: (v: string) => void;
  type?: 'text' | 'password' | 'email' | 'number';
  autocomplete?: 'username' | 'current-password' | 'new-password' | 'off';
  required?: boolean;
  placeholder?: string;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input class="input" id={id} type={type as 'text'} value={value} autocomplete={autocomplete ?? 'off'} required={required} placeholder={placeholder} autofocus={focus}
        aria-invalid={problem ? true : undefined} aria-describedby={hint || problem ? `${id}-about` : undefined}
        onInput={e => set(e.currentTarget.value)} />
      <About id={id} hint={hint} problem={problem} />
    </div>
  );
}

export function SelectField({ label, value, set, options, hint, problem }: Common & {
  value: string;
  set: (v: string) => void;
  options: Array<{ value: string; text: string }>;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select class="select" id={id} value={value} onChange={e => set(e.currentTarget.value)}
        aria-describedby={hint || problem ? `${id}-about` : undefined}>
        {options.map(o => <option key={o.value} value={o.value}>{o.text}</option>)}
      </select>
      <About id={id} hint={hint} problem={problem} />
    </div>
  );
}

export function CheckField({ label, value, set, hint }: { label: string; value: boolean; set: (v: boolean) => void; hint?: string | undefined }) {
  const id = useId();
  const box = (
    <label class="check">
      <input type="checkbox" checked={value} aria-describedby={hint ? `${id}-about` : undefined} onChange={e => set(e.currentTarget.checked)} />
      {label}
    </label>
  );
  return hint ? <div class="field">{box}<About id={id} hint={hint} /></div> : box;
}
