-- One counter: reading it, adding to it. The start of every script here; see README.md.

local call, try = redis.call, redis.pcall
local tonumber, type = tonumber, type
local find, floor, format, min = string.find, math.floor, string.format, math.min

-- Doubles hold every integer below this.
local EXACT = 9007199254740992

-- The units that a counter holds, 0 without one; nil and a text if they cannot be read.
local function count(key)
  local value = try('GET', key)
  if not value then
    return 0
  end
  if type(value) == 'table' then
    return nil, value.err
  end
  -- As strict as INCRBY, so that what was read can be added to.
  if value ~= '0' and not find(value, '^[1-9]%d*$') then
    return nil, 'ERR the counter does not hold a number of units'
  end
  local units = tonumber(value)
  if units >= EXACT then
    return nil, 'ERR the counter holds 2^53 units or more'
  end
  return units
end

-- Adds `cost` to a counter that holds `current` units; a text if that fails. One command creates a
-- counter and its time to live, and nothing changes that afterwards: no counter is ever without one.
local function add(key, current, cost, expiry_option, expiry)
  local done
  if current == 0 then
    done = try('SET', key, cost, 'NX', expiry_option, expiry)
  end
  if not done then
    -- It exists, perhaps with 0 units, all of them given back.
    done = try('INCRBY', key, cost)
  end
  return type(done) == 'table' and done.err or nil
end

-- By name: `decide` tells whether a cost is admitted and the counts as found, or nil and a text;
-- `charge` adds a cost, or tells in a text why not.
local rules = {}
