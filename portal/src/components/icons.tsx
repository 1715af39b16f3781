// The few drawings that words cannot replace. All are decoration: what they stand for is also said in text.
import type { ComponentChildren } from 'preact';

function Icon({ size = 16, children }: { size?: number; children: ComponentChildren }) {
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round"
      stroke-linejoin="round" aria-hidden="true">
      {children}
    </svg>
  );
}

const wave = 'c1.700-1.500 3.300-1.500 5 0s3.300 1.500 5 0';
export const Waves = () => <Icon size={18}><path d={`M3 5${wave}M3 8.500${wave}M3 12${wave}`} /></Icon>;
export const SearchIcon = () => <Icon><circle cx="7" cy="7" r="4.200" /><path d="m10.200 10.200 3.300 3.300" /></Icon>;
export const MenuIcon = () => <Icon><path d="M2.500 4.500h11M2.500 8h11M2.500 11.500h11" /></Icon>;
export const CloseIcon = () => <Icon><path d="m4 4 8 8m0-8-8 8" /></Icon>;
export const DownIcon = () => <Icon size={12}><path d="m3.500 6 4.500 4.500L12.500 6" /></Icon>;

/** A dry channel: the drawing of empty states. */
export const Channel = () => (
  <svg viewBox="0 0 56 40" fill="none" stroke="currentColor" stroke-width="2.500" stroke-linecap="round" aria-hidden="true">
    <path d="M4 10h8l7 22h18l7-22h8" /><path d="M20 22c2.700-2.400 5.300-2.400 8 0s5.300 2.400 8 0" />
  </svg>
);
