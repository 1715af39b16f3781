// acequia-pam: tells whether a user of this machine has this password. Reads "SERVICE\0USER\0FROM\0PASSWORD\0" from its
// standard input, so that nothing of it is in a command line or an environment, and exits with 0 (right), 1 (wrong) or
// 2 (it cannot be found out). One question, then it ends: what a PAM module leaves behind ends with it, and the
// controller links no PAM.
#include <security/pam_appl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "question.h"

enum { INPUT_MAX = 8192, RIGHT = 0, WRONG = 1, UNKNOWN = 2 };

static char input[INPUT_MAX];

static int read_question(const char *words[static QUESTION_WORDS]) {
    size_t len = 0;
    for (ssize_t n; len < sizeof input && (n = read(STDIN_FILENO, input + len, sizeof input - len)) > 0;)
        len += (size_t)n;
    return question_split(input, len, words);
}

// Answers what is asked without echo with the password, and nothing else: a second factor is not asked for here.
static int converse(int count, const struct pam_message **messages, struct pam_response **out,
                    void *password) {
    struct pam_response *r = calloc((size_t)count, sizeof *r);
    if (!r)
        return PAM_BUF_ERR;
    for (int i = 0; i < count; i++) {
        if (messages[i]->msg_style == PAM_PROMPT_ECHO_OFF && (r[i].resp = strdup(password)))
            continue;
        if (messages[i]->msg_style == PAM_TEXT_INFO || messages[i]->msg_style == PAM_ERROR_MSG)
            continue;
        for (int k = 0; k < i; k++)
            free(r[k].resp);
        free(r);
        return PAM_CONV_ERR;
    }
    *out = r;
    return PAM_SUCCESS;
}

static int verdict(int r) {
    switch (r) {
    case PAM_SUCCESS: return RIGHT;
    case PAM_AUTH_ERR:
    case PAM_USER_UNKNOWN:
    case PAM_MAXTRIES:
    case PAM_ACCT_EXPIRED:
    case PAM_NEW_AUTHTOK_REQD:
    case PAM_PERM_DENIED: return WRONG;
    default: return UNKNOWN;
    }
}

int main(void) {
    const char *words[QUESTION_WORDS];
    pam_handle_t *pam = NULL;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    prctl(PR_SET_DUMPABLE, 0);
    if (read_question(words) < 0) {
        fprintf(stderr, "acequia-pam: the controller starts this program; it is told service, user, address "
                        "and password\n");
        return UNKNOWN;
    }
    union {
        const char *in;
        char *out;
    } password = {words[3]};
    const struct pam_conv conversation = {converse, password.out};
    int r = pam_start(words[0], words[1], &conversation, &pam);
    if (r == PAM_SUCCESS)
        r = pam_set_item(pam, PAM_RHOST, words[2]);
    if (r == PAM_SUCCESS)
        r = pam_authenticate(pam, PAM_SILENT | PAM_DISALLOW_NULL_AUTHTOK);
    if (r == PAM_SUCCESS)
        r = pam_acct_mgmt(pam, PAM_SILENT | PAM_DISALLOW_NULL_AUTHTOK);
    int result = verdict(r);
    if (result == UNKNOWN)
        fprintf(stderr, "acequia-pam: service %s: %s\n", words[0],
                pam ? pam_strerror(pam, r) : "cannot be started");
    if (pam)
        pam_end(pam, r);
    explicit_bzero(input, sizeof input);
    return result;
}
