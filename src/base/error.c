// Owns the formatting of errors; a text too long is cut, never overrun.
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *e, int code, const char *fmt, ...) {
    if (e) {
        va_list args;
        e->code = code;
        va_start(args, fmt);
        vsnprintf(e->text, sizeof e->text, fmt, args);
        va_end(args);
    }
    return -code;
}

int error_prefix(struct error *e, const char *fmt, ...) {
    if (!e)
        return 0;
    char prefix[ERROR_TEXT_MAX / 2], old[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, args);
    va_end(args);
    memcpy(old, e->text, sizeof old);
    snprintf(e->text, sizeof e->text, "%s: %.*s", prefix, (int)(sizeof old / 2 - 3), old);
    return -e->code;
}

const char *error_remedy(int code) {
    switch (code) {
    case ENOSPC: return "; make room on that disk";
    case EDQUOT: return "; remove files of its user there, or raise the user's quota";
    case EROFS:
        return "; make that file system writable again (the kernel's log says why it is not), or name "
               "another folder";
    case EIO: return "; that disk fails: see the kernel's log";
    case EACCES:
    case EPERM: return "; give this user write permission there, or name another folder";
    default: return "";
    }
}

#define NAME(code) [code] = #code
static const char *const names[] = {
    NAME(EPERM), NAME(ENOENT), NAME(ESRCH), NAME(EINTR), NAME(EIO), NAME(ENXIO), NAME(E2BIG),
    NAME(ENOEXEC), NAME(EBADF), NAME(ECHILD), NAME(EAGAIN), NAME(ENOMEM), NAME(EACCES),
    NAME(EFAULT), NAME(ENOTBLK), NAME(EBUSY), NAME(EEXIST), NAME(EXDEV), NAME(ENODEV),
    NAME(ENOTDIR), NAME(EISDIR), NAME(EINVAL), NAME(ENFILE), NAME(EMFILE), NAME(ENOTTY),
    NAME(ETXTBSY), NAME(EFBIG), NAME(ENOSPC), NAME(ESPIPE), NAME(EROFS), NAME(EMLINK), NAME(EPIPE),
    NAME(EDOM), NAME(ERANGE), NAME(EDEADLOCK), NAME(ENAMETOOLONG), NAME(ENOLCK), NAME(ENOSYS),
    NAME(ENOTEMPTY), NAME(ELOOP), NAME(ENOMSG), NAME(EIDRM), NAME(ECHRNG), NAME(EL2NSYNC),
    NAME(EL3HLT), NAME(EL3RST), NAME(ELNRNG), NAME(EUNATCH), NAME(ENOCSI), NAME(EL2HLT),
    NAME(EBADE), NAME(EBADR), NAME(EXFULL), NAME(ENOANO), NAME(EBADRQC), NAME(EBADSLT),
    NAME(EBFONT), NAME(ENOSTR), NAME(ENODATA), NAME(ETIME), NAME(ENOSR), NAME(ENONET),
    NAME(ENOPKG), NAME(EREMOTE), NAME(ENOLINK), NAME(EADV), NAME(ESRMNT), NAME(ECOMM),
    NAME(EPROTO), NAME(EMULTIHOP), NAME(EDOTDOT), NAME(EBADMSG), NAME(EOVERFLOW), NAME(ENOTUNIQ),
    NAME(EBADFD), NAME(EREMCHG), NAME(ELIBACC), NAME(ELIBBAD), NAME(ELIBSCN), NAME(ELIBMAX),
    NAME(ELIBEXEC), NAME(EILSEQ), NAME(ERESTART), NAME(ESTRPIPE), NAME(EUSERS), NAME(ENOTSOCK),
    NAME(EDESTADDRREQ), NAME(EMSGSIZE), NAME(EPROTOTYPE), NAME(ENOPROTOOPT), NAME(EPROTONOSUPPORT),
    NAME(ESOCKTNOSUPPORT), NAME(ENOTSUP), NAME(EPFNOSUPPORT), NAME(EAFNOSUPPORT), NAME(EADDRINUSE),
    NAME(EADDRNOTAVAIL), NAME(ENETDOWN), NAME(ENETUNREACH), NAME(ENETRESET), NAME(ECONNABORTED),
    NAME(ECONNRESET), NAME(ENOBUFS), NAME(EISCONN), NAME(ENOTCONN), NAME(ESHUTDOWN),
    NAME(ETOOMANYREFS), NAME(ETIMEDOUT), NAME(ECONNREFUSED), NAME(EHOSTDOWN), NAME(EHOSTUNREACH),
    NAME(EALREADY), NAME(EINPROGRESS), NAME(ESTALE), NAME(EUCLEAN), NAME(ENOTNAM), NAME(ENAVAIL),
    NAME(EISNAM), NAME(EREMOTEIO), NAME(EDQUOT), NAME(ENOMEDIUM), NAME(EMEDIUMTYPE),
    NAME(ECANCELED), NAME(ENOKEY), NAME(EKEYEXPIRED), NAME(EKEYREVOKED), NAME(EKEYREJECTED),
    NAME(EOWNERDEAD), NAME(ENOTRECOVERABLE), NAME(ERFKILL),
};
#undef NAME

const char *error_name(int code) {
    return code > 0 && (size_t)code < sizeof names / sizeof *names ? names[code] : NULL;
}

int error_number(const char *name) {
    for (size_t i = 1; name && i < sizeof names / sizeof *names; i++)
        if (names[i] && strcmp(names[i], name) == 0)
            return (int)i;
    return 0;
}
