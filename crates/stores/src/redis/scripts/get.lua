#!lua flags=no-writes,allow-oom
-- The records of some ids.
--
-- KEYS    as in prelude.lua
-- ARGV    "whole", or "head" to leave the bodies out; then ids
-- result  per id: "" if unknown, else "1" in flight or "0" not, and the packed message
local ids = {}
for i = FIRST + 1, #ARGV do ids[#ids + 1] = ARGV[i] end
local packed = call('HMGET', msg, unpack(ids))
local claims = call('HMGET', claim, unpack(ids))
local answers = {}
for i = 1, #ids do
  local value = packed[i]
  if value and ARGV[FIRST] == 'head' then
    -- What cannot be read is returned as it is.
    local m = open(ids[i], value)
    value = value:sub(1, #value - (m and #m.body or 0))
  end
  answers[i] = value and (claims[i] and '1' or '0') .. value or ''
end
return answers
