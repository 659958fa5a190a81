// Package notify tells a user something at once: Sequence by the user's terminal, and Webhook by a message to a chat.
package notify
