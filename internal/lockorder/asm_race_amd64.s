//go:build race

#include "textflag.h"

// func g() uintptr
TEXT ·g(SB), NOSPLIT, $0-8
	MOVQ (TLS), AX
	MOVQ AX, ret+0(FP)
	RET

// func callers(to *[depth]uintptr)
//
// A frame pointer points at that of the caller, with the return address beside it.
TEXT ·callers(SB), NOSPLIT, $0-8
	MOVQ to+0(FP), DI
	MOVQ BP, CX
	MOVQ $12, DX // depth
next:
	TESTQ CX, CX
	JZ done
	MOVQ 8(CX), AX
	MOVQ AX, (DI)
	ADDQ $8, DI
	MOVQ (CX), CX
	DECQ DX
	JNZ next
done:
	RET
