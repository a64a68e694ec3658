// nobody builds this
