// Errors: functions return 0 or a negative errno; where a person will read the reason, the last
// parameter is a caller-owned struct error that names the problem and the remedy.
#pragma once

enum { ERROR_TEXT_MAX = 512 };

struct error {
    int code;  // positive errno, 0 when unset
    char text[ERROR_TEXT_MAX];
};

// Fills `e` (which may be NULL) and returns -code.
int error_set(struct error *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// Puts "prefix: " before the text that is there already.
int error_prefix(struct error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// What to do about a file or folder that cannot be written, as the end of a sentence: "; make room on that disk". Empty
// for codes that say nothing about the disk.
const char *error_remedy(int code);
// "ENOENT"; NULL for a number that has no name.
const char *error_name(int code);
// The positive errno of that name; 0: there is none.
int error_number(const char *name);
