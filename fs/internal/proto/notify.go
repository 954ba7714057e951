package proto

// Codes of notifications (enum fuse_notify_code). A notification is an answer that nobody asked for: a header with the
// request number 0 and the code in the place of the error, and then
//
//	INVAL_INODE  node u64, offset i64, length i64
//	INVAL_ENTRY  parent u64, length of name u32, flags u32, name, NUL
//	RETRIEVE     request number u64, node u64, offset u64, size u32, padding u32
//	DELETE       parent u64, child u64, length of name u32, padding u32, name, NUL
//	RESEND       nothing; since Linux 6.9
//	PRUNE        count u32, padding u32, spare u64, nodes u64 each; since Linux 6.18
const (
	NotifyInvalInode = 2
	NotifyInvalEntry = 3
	NotifyRetrieve   = 5
	NotifyDelete     = 6
	NotifyResend     = 7
	NotifyPrune      = 9

	// ExpireOnly is a flag of INVAL_ENTRY since protocol 7.38; older kernels do not look at it.
	ExpireOnly = 1 << 0

	// Resent is set in the number of a request that the kernel gives out again after RESEND. Answers carry it, too.
	Resent = 1 << 63
)
