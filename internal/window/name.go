package window

import "crypto/sha256"

// A Name stands for the ID of a call or of a settlement of one subject: 63 bits of the ID's SHA-256. Two of the IDs that
// a subject remembers have the same name by chance once in 10^11 subjects. The zero Name is none.
type Name [8]byte

// CallName returns the name of a call's ID.
func CallName(id string) Name {
	n := name(id)
	n[0] &^= settles
	return n
}

// SettlementName returns the name of a settlement's ID, which is never that of a call.
func SettlementName(id string) Name {
	n := name(id)
	n[0] |= settles
	return n
}

// settles is the bit of a name's first byte that is set for a settlement.
const settles = 0x80

// Settles reports whether the name is that of a settlement.
func (n Name) Settles() bool { return n[0]&settles != 0 }

func name(id string) Name {
	sum := sha256.Sum256([]byte(id))
	return Name(sum[:len(Name{})])
}
