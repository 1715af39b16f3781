// When a waiting job starts, in as few words as possible.
import type { JobRow } from '../api/types';
import * as f from '../lib/format';
import { t } from '../lib/i18n';

// Only the next jobs of the queue have a planned start; of the others what is known is said, and no more.
export function startText(r: Pick<JobRow, 'expected_start_ms' | 'hold' | 'eligible_ms' | 'reason'>): string {
  if (r.hold) return t('job.held');
  if (!r.expected_start_ms && r.eligible_ms > Date.now()) return t('job.notBefore', { at: f.moment(r.eligible_ms) });
  if (!r.expected_start_ms) return t(r.reason?.startsWith('Dependency') ? 'job.afterOthers' : 'job.notPlanned');
  return r.expected_start_ms <= Date.now() ? t('job.startNow') : f.moment(r.expected_start_ms);
}
