module messagesender

go 1.26
