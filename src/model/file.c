// Owns the tables of requests about files, and names as text.
#include "model/file.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

const char *const file_operation_words[] = {"list", "read", "write", "remove", "mkdir",
                                            "move", "copy", "zip",   "space",  NULL};
const char *const file_type_words[] = {"file", "folder", "link", "other", NULL};

#define S struct file_use
static const struct field use_fields[] = {FIELD(1, S, job, ""), FIELD(2, S, name, ""), FIELD(3, S, path, "")};
static const struct schema file_use_schema = SCHEMA(S, "file_use", use_fields);
#undef S
#define S struct file_request
static const struct field request_fields[] = {
    FIELD(1, S, stream, ""),
    FIELD(2, S, credit, ""),
    FIELD_WORDS(3, S, operation, file_operation_words, ""),
    FIELD(4, S, user, ""),
    FIELD(5, S, uid, ""),
    FIELD(6, S, folder, ""),
    FIELD(7, S, path, ""),
    FIELD(8, S, to, ""),
    FIELD(9, S, after, ""),
    FIELD(10, S, limit, ""),
    FIELD(11, S, offset, ""),
    FIELD(12, S, length, ""),
    FIELD(13, S, size, ""),
    FIELD(14, S, upload, ""),
    FIELD(15, S, data, ""),
    FIELD(16, S, match, ""),
    FIELD(17, S, create, ""),
    FIELD(18, S, recursive, ""),
    FIELD(19, S, visible_only, ""),
    FIELD(20, S, last, ""),
    FIELD_LIST_SUB(21, S, uses, &file_use_schema, ""),
};
const struct schema file_request_schema = SCHEMA(S, "file", request_fields);
#undef S
#define S struct file_entry
static const struct field entry_fields[] = {
    FIELD(1, S, name, "Its name. '%', control characters and bytes that are not UTF-8 are written as %XX."),
    FIELD_WORDS(2, S, type, file_type_words,
                "What it is; other: a device, pipe or socket, which is never opened."),
    FIELD(3, S, size, "Bytes."),
    FIELD(4, S, modified_ms, "When its content changed last."),
    FIELD(5, S, mode, "Permission bits."),
    FIELD(6, S, target, "Of a link: what it points to."),
    FIELD(7, S, version, "Of a plain file: changes when its content does; for If-Match."),
};
const struct schema file_entry_schema = SCHEMA(S, "file_entry", entry_fields);
#undef S
#define S struct file_result
static const struct field result_fields[] = {
    FIELD(1, S, stream, ""),
    FIELD(2, S, error, ""),
    FIELD(3, S, text, ""),
    FIELD_SUB(4, S, entry, &file_entry_schema, ""),
    FIELD(5, S, path, ""),
    FIELD(6, S, home, ""),
    FIELD_LIST_SUB(7, S, entries, &file_entry_schema, ""),
    FIELD(8, S, next, ""),
    FIELD(9, S, truncated, ""),
    FIELD(10, S, offset, ""),
    FIELD(11, S, complete, ""),
    FIELD(12, S, working, ""),
    FIELD(13, S, first, ""),
    FIELD(14, S, length, ""),
    FIELD(15, S, space_bytes, ""),
    FIELD(16, S, space_free_bytes, ""),
    FIELD(17, S, file_system, ""),
    FIELD(18, S, quota, ""),
};
const struct schema file_result_schema = SCHEMA(S, "file_result", result_fields);
#undef S
#define S struct file_order
static const struct field order_fields[] = {
    FIELD(1, S, switch_user, ""), FIELD(2, S, uid, ""),  FIELD(3, S, gid, ""),
    FIELD_LIST(4, S, groups, ""), FIELD(5, S, home, ""), FIELD_SUB(6, S, request, &file_request_schema, ""),
};
const struct schema file_order_schema = SCHEMA(S, "file_order", order_fields);
#undef S

// Length of the character at `s` that may stand in a text as it is; 0: its first byte is written as %XX.
static size_t plain_length(const char *s, size_t len) {
    uint32_t code;
    if (*s == '%' || str_control_char(s, len, &code))
        return 0;
    for (size_t n = 1; n <= 4 && n <= len; n++)
        if (str_utf8_valid(s, n))
            return n;
    return 0;
}

void file_name_write(const char *bytes, size_t len, struct buf *out) {
    for (size_t i = 0; i < len;) {
        size_t n = plain_length(bytes + i, len - i);
        if (n)
            buf_add(out, bytes + i, n);
        else
            buf_addf(out, "%%%02X", (unsigned char)bytes[i]);
        i += n ? n : 1;
    }
}

static int hex_value(char c) {
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c ? strchr(digits, c >= 'a' && c <= 'f' ? c - 'a' + 'A' : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

int file_name_read(const char *text, struct buf *out, struct error *e) {
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '%') {
            buf_addc(out, text[i]);
            continue;
        }
        int high = hex_value(text[i + 1]), low = high < 0 ? -1 : hex_value(text[i + 2]);
        if (low < 0 || high + low == 0)
            return error_set(e, EINVAL,
                             "path: \"%%\" is followed by two hexadecimal digits, not 00; the sign itself "
                             "is written as %%25");
        buf_addc(out, (char)(high * 16 + low));
        i += 2;
    }
    if (out->len > FILE_PATH_MAX)
        return error_set(e, ENAMETOOLONG, "path: it is longer than %d bytes", FILE_PATH_MAX);
    return 0;
}
