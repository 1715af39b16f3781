// Owns the sealed form of values.
#include "net/aead.h"

#include <errno.h>
#include <limits.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/rand.h"

enum { VERSION = 1, ID_BYTES = 8, NONCE_BYTES = 12, TAG_BYTES = 16, HEAD_BYTES = 1 + ID_BYTES + NONCE_BYTES };

static int key_id(const struct aead_key *k, uint8_t out[static ID_BYTES]) {
    static const char salt[] = "acequia key id";
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    EVP_MD_CTX *m = EVP_MD_CTX_new();
    int ok = m && EVP_DigestInit_ex(m, EVP_sha256(), NULL) && EVP_DigestUpdate(m, salt, sizeof salt) &&
             EVP_DigestUpdate(m, k->bytes, sizeof k->bytes) && EVP_DigestFinal_ex(m, digest, &n);
    EVP_MD_CTX_free(m);
    if (ok)
        memcpy(out, digest, ID_BYTES);
    return ok ? 0 : -EIO;
}

// The head is authenticated with the context.
static bool begin(EVP_CIPHER_CTX *c, bool seal, const struct aead_key *k, const uint8_t *head,
                  const char *context) {
    int n;
    return EVP_CipherInit_ex(c, EVP_aes_256_gcm(), NULL, k->bytes, head + 1 + ID_BYTES, seal) == 1 &&
           EVP_CipherUpdate(c, NULL, &n, head, HEAD_BYTES) == 1 &&
           EVP_CipherUpdate(c, NULL, &n, (const uint8_t *)context, (int)strlen(context)) == 1;
}

int aead_seal(const struct aead_key *k, const char *context, const void *data, size_t len, struct buf *out,
              struct error *e) {
    uint8_t head[HEAD_BYTES] = {VERSION};
    int n = 0, last = 0;
    if (len > INT_MAX / 2 || key_id(k, head + 1) < 0 || rand_secret(head + 1 + ID_BYTES, NONCE_BYTES) < 0)
        return error_set(e, EIO, "the value cannot be encrypted");
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    uint8_t *to = (uint8_t *)buf_reserve(out, HEAD_BYTES + len + TAG_BYTES), *body = to + HEAD_BYTES;
    memcpy(to, head, HEAD_BYTES);
    bool ok = c && begin(c, true, k, head, context) && EVP_CipherUpdate(c, body, &n, data, (int)len) == 1 &&
              EVP_CipherFinal_ex(c, body + n, &last) == 1 && (size_t)(n + last) == len &&
              EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, body + len) == 1;
    EVP_CIPHER_CTX_free(c);
    if (!ok)
        return error_set(e, EIO, "the value cannot be encrypted");
    out->len += HEAD_BYTES + len + TAG_BYTES;
    return 0;
}

int aead_open(const struct aead_key *k, const char *context, const void *data, size_t len, struct buf *out,
              struct error *e) {
    const uint8_t *from = data;
    uint8_t id[ID_BYTES], tag[TAG_BYTES];
    int n = 0, last = 0;
    if (len < HEAD_BYTES + TAG_BYTES || len > INT_MAX / 2 || from[0] != VERSION)
        return error_set(e, EBADMSG, "the encrypted value is damaged; store it again");
    if (key_id(k, id) < 0 || memcmp(id, from + 1, ID_BYTES))
        return error_set(e, EKEYREJECTED,
                         "the value was encrypted with another key; put that key back, or store the secret again");
    size_t body = len - HEAD_BYTES - TAG_BYTES;
    memcpy(tag, from + len - TAG_BYTES, TAG_BYTES);
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    uint8_t *to = (uint8_t *)buf_reserve(out, body + 1);
    bool ok = c && begin(c, false, k, from, context) &&
              EVP_CipherUpdate(c, to, &n, from + HEAD_BYTES, (int)body) == 1 &&
              EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) == 1 &&
              EVP_CipherFinal_ex(c, to + n, &last) == 1 && (size_t)(n + last) == body;
    EVP_CIPHER_CTX_free(c);
    if (!ok) {
        explicit_bzero(to, body);
        return error_set(e, EBADMSG, "the encrypted value is damaged; store it again");
    }
    out->len += body;
    return 0;
}
