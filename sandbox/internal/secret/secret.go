package secret

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

const (
	// Prefix is what every secret begins with.
	Prefix = "snapfs_"

	idDigits = 32
	keyBytes = 32
	length   = len(Prefix) + idDigits + 1 + (keyBytes*8+5)/6
)

// Sum is the hash of a secret.
type Sum [sha256.Size]byte

// errMalformed says nothing of what was given: that may be a secret of something else.
var errMalformed = errors.New("it is not the secret of a token")

// New makes the secret of a token with an id, a UUID.
func New(id string) (text string, sum Sum) {
	var key [keyBytes]byte
	_, _ = rand.Read(key[:]) // never fails
	text = Prefix + strings.ReplaceAll(id, "-", "") + "_" + base64.RawURLEncoding.EncodeToString(key[:])
	return text, sha256.Sum256([]byte(text))
}

// Parse reads the id in a secret, and hashes the secret. It takes only the spelling that New writes.
func Parse(text string) (id string, sum Sum, err error) {
	if len(text) != length || !strings.HasPrefix(text, Prefix) {
		return "", sum, errMalformed
	}
	digits, key := text[len(Prefix):len(Prefix)+idDigits], text[len(Prefix)+idDigits:]
	if _, err := hex.DecodeString(digits); err != nil || strings.ToLower(digits) != digits || key[0] != '_' {
		return "", sum, errMalformed
	}
	if _, err := base64.RawURLEncoding.Strict().DecodeString(key[1:]); err != nil {
		return "", sum, errMalformed
	}
	id = strings.Join([]string{digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]}, "-")
	return id, sha256.Sum256([]byte(text)), nil
}

// Is compares two hashes in a time that does not depend on them.
func (s Sum) Is(other []byte) bool { return subtle.ConstantTimeCompare(s[:], other) == 1 }
