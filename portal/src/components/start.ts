// When a waiting job starts, in as few words as possible.
import type { JobRow } from '../api/types';
import * as f from '../lib/format';
import { t } from '../lib/i18n';

export function startText(r: Pick<JobRow, 'expected_start_ms' | 'hold'>): string {
  if (r.hold) return t('job.held');
  if (!r.expected_start_ms) return t('job.startUnknown');
  return r.expected_start_ms <= Date.now() ? t('job.startNow') : f.moment(r.expected_start_ms);
}
