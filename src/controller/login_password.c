// Passwords of own users: argon2id with the second parameter set that RFC 9106 recommends, on one lane.
#include <argon2.h>
#include <errno.h>
#include <string.h>

#include "base/rand.h"
#include "login.h"

enum { TIME_COST = 3, MEMORY_KIB = 64 << 10, LANES = 1, SALT_BYTES = 16, HASH_BYTES = 32 };

int login_password_hash(const char *password, char out[static LOGIN_HASH_MAX], struct error *e) {
    unsigned char salt[SALT_BYTES];
    if (rand_secret(salt, sizeof salt) < 0)
        return error_set(e, EIO, "the kernel gives no random numbers");
    int r = argon2id_hash_encoded(TIME_COST, MEMORY_KIB, LANES, password, strlen(password), salt, sizeof salt,
                                  HASH_BYTES, out, LOGIN_HASH_MAX);
    return r == ARGON2_OK ? 0
                          : error_set(e, EIO, "the password cannot be hashed: %s", argon2_error_message(r));
}

bool login_password_matches(const char *hash, const char *password) {
    // Of nobody's password: that an account does not exist takes as long to find out.
    static const char nobody[] = "$argon2id$v=19$m=65536,t=3,p=1$AAAAAAAAAAAAAAAAAAAAAA$"
                                 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    bool right = argon2id_verify(hash ? hash : nobody, password, strlen(password)) == ARGON2_OK;
    return hash && right;
}
