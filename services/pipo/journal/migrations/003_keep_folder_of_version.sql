-- A version's relative paths mean the folder that its file was in, wherever the file is now.

ALTER TABLE versions ADD COLUMN folder TEXT;
