// The process that asks the system's directory of users, see users.h. Questions and answers are
// single records of a socket.
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "base/users.h"

struct users_question {
    uint64_t number;
    uint32_t uid;                   // when there is no name
    char name[USERS_NAME_MAX + 1];  // "": by number
};

// What follows the head: name, home and shell, each with its NUL, then the groups.
struct users_answer {
    uint64_t number;
    int32_t result;  // 0, -ENOENT, or another negative errno: the question was not answered
    uint32_t uid, gid, ngroups;
    uint32_t name_len, home_len, shell_len;  // with the NUL
};

enum {
    USERS_TEXT_MAX = 4096,  // home, shell
    USERS_ANSWER_MAX = sizeof(struct users_answer) + USERS_NAME_MAX + 1 + 2 * USERS_TEXT_MAX + 4 * USERS_GROUPS_MAX,
    USERS_ASK_S = 60,       // a child that takes longer is ended
};

// Starts the process on `fd`, its end of the socket; `other` is ours.
int users_ask_start(int fd, int other, pid_t *pid);
