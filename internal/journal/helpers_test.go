package journal

import (
	"errors"

	"messagesender/internal/appendlog"
)

func damaged(err error) bool {
	_, ok := errors.AsType[*appendlog.DamageError](err)
	return ok
}
