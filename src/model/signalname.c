// Owns the names of signals.
#include "model/signalname.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

static const struct {
    const char *name;
    uint32_t number;
} signals[] = {
    {"HUP", SIGHUP},   {"INT", SIGINT},     {"QUIT", SIGQUIT}, {"ILL", SIGILL},   {"TRAP", SIGTRAP},
    {"ABRT", SIGABRT}, {"BUS", SIGBUS},     {"FPE", SIGFPE},   {"KILL", SIGKILL}, {"USR1", SIGUSR1},
    {"SEGV", SIGSEGV}, {"USR2", SIGUSR2},   {"PIPE", SIGPIPE}, {"ALRM", SIGALRM}, {"TERM", SIGTERM},
    {"CHLD", SIGCHLD}, {"CONT", SIGCONT},   {"STOP", SIGSTOP}, {"TSTP", SIGTSTP}, {"TTIN", SIGTTIN},
    {"TTOU", SIGTTOU}, {"URG", SIGURG},     {"XCPU", SIGXCPU}, {"XFSZ", SIGXFSZ}, {"VTALRM", SIGVTALRM},
    {"PROF", SIGPROF}, {"WINCH", SIGWINCH}, {"IO", SIGIO},     {"PWR", SIGPWR},   {"SYS", SIGSYS},
};

int signal_parse(const char *text, uint32_t *number, struct error *e) {
    char shown[64];
    uint32_t n;
    const char *name = text && !strncasecmp(text, "SIG", 3) ? text + 3 : text;
    if (text && parse_u32(text, &n) == 0 && n >= 1 && n <= SIGNAL_NUMBER_MAX) {
        *number = n;
        return 0;
    }
    for (size_t i = 0; name && i < sizeof signals / sizeof *signals; i++)
        if (!strcasecmp(name, signals[i].name)) {
            *number = signals[i].number;
            return 0;
        }
    return error_set(e, EINVAL,
                     "\"%s\" is not a signal; write a name such as TERM or USR1, or a number from 1 to %d",
                     str_printable(text ? text : "", shown, sizeof shown), SIGNAL_NUMBER_MAX);
}

const char *signal_name(uint32_t number, char out[static SIGNAL_TEXT_MAX]) {
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (signals[i].number == number)
            return signals[i].name;
    if (number >= 34 && number <= SIGNAL_NUMBER_MAX)
        snprintf(out, SIGNAL_TEXT_MAX, "RTMIN+%u", number - 34);
    else
        snprintf(out, SIGNAL_TEXT_MAX, "%u", number);
    return out;
}

int signal_spec_parse(const char *text, struct signal_spec *out, struct error *e) {
    struct signal_spec s = {.before_s = SIGNAL_BEFORE_DEFAULT_S};
    char shown[64], name[SIGNAL_TEXT_MAX];
    if (str_empty(text))
        return signal_parse("", &s.signal, e);
    const char *p = text, *colon = strchr(p, ':');
    for (; colon && p < colon; p++) {
        if (*p == 'B' && !s.batch_only)
            s.batch_only = true;
        else if (*p == 'R' && !s.for_reservation)
            s.for_reservation = true;
        else
            return error_set(
                e, EINVAL,
                "\"%s\" is not a signal with its time; write [B:]SIGNAL[@SECONDS], for example B:USR1@120",
                str_printable(text, shown, sizeof shown));
    }
    p = colon ? colon + 1 : p;
    const char *at = strchr(p, '@');
    size_t len = at ? (size_t)(at - p) : strlen(p);
    if (len >= sizeof name)
        return signal_parse(p, &s.signal, e);
    memcpy(name, p, len);
    name[len] = 0;
    int r = signal_parse(name, &s.signal, e);
    if (r < 0)
        return r;
    if (at && (parse_u32(at + 1, &s.before_s) < 0 || s.before_s > SIGNAL_BEFORE_MAX_S))
        return error_set(e, EINVAL, "\"%s\" does not end in seconds from 0 to %d; write for example USR1@120",
                         str_printable(text, shown, sizeof shown), SIGNAL_BEFORE_MAX_S);
    *out = s;
    return 0;
}
